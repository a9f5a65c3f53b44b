"""What becomes of damaged configurations is what it was: a change of it is made on purpose."""

from __future__ import annotations

import json

import pytest

from tests.config.recorded import KEPT, outcomes
from tests.support.recorded import changed


@pytest.fixture(scope="module")
def found() -> dict[str, list[object]]:
    return outcomes()


def test_damaged_configurations_become_what_they_became(found: dict[str, list[object]]) -> None:
    names = changed(KEPT, found)
    assert not names, f"{names} become something else; if that is meant, `python -m tests.config.recorded` keeps it"


@pytest.mark.parametrize("of", json.loads(KEPT.read_text("utf-8")))
def test_a_part_is_taken(found: dict[str, list[object]], of: str) -> None:
    refused = [one for one in found[of] if isinstance(one, list) and one[:1] in (["refused"], ["raised"])]
    assert len(refused) < len(found[of])
