"""Why something that began like a call stayed text."""

from __future__ import annotations

import pytest

from supervisor.core.toolcalls import LeftAsText, Recoverer
from supervisor.core.toolcalls.dialects import REGISTRY
from tests.core.toolcalls.corpus import TOOLS

UNKNOWN = '<tool_call>{"name": "nothing", "arguments": {"a": "x'
BROKEN = '<tool_call>{"name": "get_weather", "arguments": ['


def left(text: str, finish: str) -> list[LeftAsText]:
    recoverer = Recoverer(TOOLS)
    events = [*recoverer.feed("content", text), *recoverer.finish(finish)]
    return [event for event in events if isinstance(event, LeftAsText)]


@pytest.mark.parametrize(("text", "why"), [(UNKNOWN, "unknown_tool"), (BROKEN, "not_a_call")])
@pytest.mark.parametrize("finish", ["length", "stop"])
def test_of_a_call_that_is_cut_off(text: str, why: str, finish: str) -> None:
    assert left(text, finish) == [LeftAsText("<tool_call>", why)]


@pytest.mark.parametrize("behind", [", as they say.", "", "\n", "\n</function_calls>", "\n</tool_call>"])
@pytest.mark.parametrize("opener", [*REGISTRY.openers, *REGISTRY.line_openers])
def test_of_a_marker_that_no_call_follows(opener: str, behind: str) -> None:
    """Each is told to be no call, and none a call of an unknown tool."""
    assert {one.why for one in left(f"Well,\n{opener}{behind}", "stop")} <= {"not_a_call"}
