"""The choices of an answer that is ended for its time."""

from __future__ import annotations

import pytest

from supervisor.core.options.kinds import MOST_SLOTS
from supervisor.proxy.timelimit import choices_of


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 1),
        ({"n": 3}, 3),
        ({"n_cmpl": 2}, 2),
        ({"n": 2_000_000_000, "n_cmpl": 1}, 1),
        ({"n": 3, "n_cmpl": None}, 3),
        ({"n": 2_000_000_000}, MOST_SLOTS),
        ({"n": -5}, 1),
        ({"n": "3"}, 1),
    ],
)
def test_the_choices_that_an_engine_makes(asked: dict[str, object], count: int) -> None:
    assert choices_of(asked) == count
