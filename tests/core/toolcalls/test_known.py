"""The tools of requests that are remembered."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.toolcalls import Options
from supervisor.core.toolcalls.known import KnownTools

ONE: dict[str, Any] = {"name": "get", "parameters": {"properties": {"x": {"enum": [1]}}}}


def test_the_same_tools_are_made_once() -> None:
    known = KnownTools()
    first = known.of([ONE])
    assert known.of([{**ONE}]) is first
    assert known.of([ONE], "none") is not first
    assert known.of([ONE], None, Options(coerce=False)) is not first


def test_a_number_is_no_truth() -> None:
    known = KnownTools()
    number, truth = known.of([ONE]), known.of([{**ONE, "parameters": {"properties": {"x": {"enum": [True]}}}}])
    found = [tools.find("get") for tools in (number, truth)]
    assert [None if tool is None else tool.from_text("x", "1") for tool in found] == [1, "1"]


def test_what_was_used_last_stays() -> None:
    known = KnownTools()
    first = known.of([ONE])
    for number in range(100):
        known.of([{**ONE, "name": f"get{number}"}])
        assert known.of([ONE]) is first


@given(st.text(st.characters(categories=["Cs"]), min_size=1), st.integers(min_value=1 << 64))
def test_what_cannot_be_compared_is_read_all_the_same(half: str, number: int) -> None:
    for odd in (half, number):
        found = KnownTools().of([{**ONE, "description": odd}]).find("get")
        assert found is not None
        assert found.order == ("x",)
