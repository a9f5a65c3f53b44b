"""When a call in the text repeats one that the engine has told."""

from __future__ import annotations

import pytest

from supervisor.core.recovery.choice import same_call


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1}', '{ "a":1 }', True),
        ('{"a": 1}', '{"a": 2}', False),
        ("", "{}", True),
        ('{"a": ', '{"a": ', True),
        ('{"a": ', '{"b": ', False),
        ('{"a": 1}', '{"a": ', False),
    ],
)
def test_calls_are_compared_by_their_arguments_or_as_text_where_those_are_none(
    one: str, other: str, same: bool
) -> None:
    assert same_call("f", one, "f", other) is same
    assert same_call("f", one, "g", other) is False
