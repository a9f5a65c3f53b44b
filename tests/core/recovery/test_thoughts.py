"""Thoughts that become the answer, chunk by chunk and whole."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.recovery.thoughts import Thoughts, answered, shows_thoughts
from supervisor.errors import InvalidRequest


def chunk(index: int = 0, reason: str | None = None, **delta: Any) -> Any:
    return {"id": "c", "choices": [{"index": index, "finish_reason": reason, "delta": delta}]}


def contents(*chunks: Any) -> list[tuple[int, str]]:
    thoughts = Thoughts()
    made = [one["choices"][0] for given in chunks for one in thoughts.feed(given) if one is not given]
    return [(one["index"], str(one["delta"]["content"])) for one in made]


def test_thoughts_come_before_the_end_of_their_own_choice() -> None:
    thinks = [chunk(0, reasoning_content="a"), chunk(1, reasoning_content="b"), chunk(0, reasoning_content="c")]
    assert contents(*thinks, chunk(0, "stop"), chunk(1, content="x"), chunk(1, "stop")) == [(0, "ac")]


@pytest.mark.parametrize(
    "between",
    [chunk(content="x"), chunk(tool_calls=[{"index": 0}]), {"choices": []}],
    ids=["text", "call", "nothing"],
)
@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_only_a_stop_without_anything_else_shows_them(between: Any, reason: str) -> None:
    shown = contents(chunk(reasoning_content="a"), between, chunk(reason=reason))
    assert shown == ([(0, "a")] if reason == "stop" and not between["choices"] else [])


def test_the_made_chunk_repeats_no_usage() -> None:
    thoughts = Thoughts()
    thoughts.feed(chunk(reasoning_content="a"))
    ended: Any = {**chunk(reason="stop"), "usage": {"total_tokens": 5}}
    made, last = thoughts.feed(ended)
    assert "usage" not in made
    assert last["usage"] == {"total_tokens": 5}


@pytest.mark.parametrize(
    ("message", "reason", "content"),
    [
        ({"reasoning_content": "a", "content": ""}, "stop", "a"),
        ({"reasoning_content": "a", "content": None}, "stop", "a"),
        ({"reasoning_content": "a", "content": "x"}, "stop", "x"),
        ({"reasoning_content": "a", "content": None, "tool_calls": [{}]}, "stop", None),
        ({"reasoning_content": "a", "content": None}, "length", None),
        ({"content": None}, "stop", None),
    ],
)
def test_a_whole_answer(message: Any, reason: str, content: str | None) -> None:
    answer: Any = answered({"choices": [{"index": 0, "finish_reason": reason, "message": message}]})
    assert answer["choices"][0]["message"]["content"] == content


def test_the_request_counts_more_than_the_model() -> None:
    assert shows_thoughts({}, "answer")
    assert not shows_thoughts({"reasoning_only": None}, "keep")
    assert not shows_thoughts({"reasoning_only": "keep"}, "answer")
    for wrong in (True, "show", ["answer"]):
        with pytest.raises(InvalidRequest, match="reasoning_only"):
            shows_thoughts({"reasoning_only": wrong}, "keep")
