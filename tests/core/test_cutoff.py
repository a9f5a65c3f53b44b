"""The end of a stream that is ended in the middle."""

from __future__ import annotations

import json
from typing import Any

from supervisor.core.stream.chat import ChatFold
from supervisor.core.stream.cutoff import Cutoff, Cuttable, Ending
from supervisor.core.stream.fold import StreamFold
from supervisor.core.stream.raw_completions import RawFold

CHAT = {"id": "c1", "created": 5, "model": "m", "object": "chat.completion.chunk"}
PROGRESS: dict[str, Any] = {"prompt_progress": {"total": 11, "cache": 0, "processed": 11, "time_ms": 1}}


def event(told: Any) -> bytes:
    return b"data: " + json.dumps(told, separators=(",", ":")).encode() + b"\n\n"


def delta(index: int, reason: str | None = None, **said: Any) -> bytes:
    return event({"choices": [{"finish_reason": reason, "index": index, "delta": said}], **CHAT})


def ended(kind: Cuttable, *pieces: bytes, choices: int = 1, usage: bool = True) -> bytes:
    cutoff = Cutoff(Ending(kind, choices, usage, "Time is up."))
    for piece in pieces:
        cutoff.see(piece)
    return cutoff.end()


def told(stream: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in stream.decode().split("\n\n") if line.startswith("data: {")]


def test_a_chat_ends_with_its_length_the_reason_and_its_usage() -> None:
    begun = event({"choices": [{"finish_reason": None, "index": 0, "delta": {}}], **CHAT, **PROGRESS})
    pieces = (begun, delta(0, content="a"), delta(0, content="b"))
    last, usage = told(ended("chat", *pieces))
    assert last == {
        **CHAT,
        "choices": [{"finish_reason": "length", "index": 0, "delta": {}}],
        "ended_by": "Time is up.",
    }
    assert usage["usage"] == {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
    fold = StreamFold(ChatFold())
    fold.feed(b"".join(pieces) + ended("chat", *pieces))
    answer: Any = fold.response()
    assert answer["choices"][0]["message"]["content"] == "ab"
    assert (answer["choices"][0]["finish_reason"], answer["ended_by"]) == ("length", "Time is up.")


def test_usage_comes_only_where_it_is_asked_for() -> None:
    stream = ended("chat", delta(0, content="a"), usage=False)
    assert len(told(stream)) == 1
    assert stream.endswith(b"data: [DONE]\n\n")


def test_only_choices_that_go_on_are_ended() -> None:
    pieces = (delta(0, content="a"), delta(1, content="b"), delta(0, "stop"))
    (last,) = told(ended("chat", *pieces, choices=2, usage=False))
    assert [one["index"] for one in last["choices"]] == [1]


def test_indexes_of_calls_are_no_choices() -> None:
    call = delta(0, tool_calls=[{"index": 3, "function": {"name": "f", "arguments": ""}}])
    assert len(told(ended("chat", call, usage=False))) == 1


def test_a_text_completion_ends_each_choice() -> None:
    def piece(index: int, reason: str | None) -> bytes:
        return event({"choices": [{"text": "x", "index": index, "logprobs": None, "finish_reason": reason}], "id": "t"})

    first, second, usage = told(ended("completion", piece(0, None), piece(1, "stop"), piece(2, None)))
    assert [one["choices"][0]["index"] for one in (first, second)] == [0, 2]
    assert usage["usage"]["completion_tokens"] == 3


def test_a_raw_completion_ends_every_prompt_that_has_begun() -> None:
    pieces = [event({"index": index, "content": "x", "tokens": [5], "stop": False}) for index in (0, 1)]
    fold = StreamFold(RawFold())
    fold.feed(b"".join(pieces) + ended("raw", *pieces))
    assert fold.done
    answers: Any = fold.response()
    assert [(one["content"], one["stop_type"], one["ended_by"]) for one in answers] == [
        ("x", "limit", "Time is up.")
    ] * 2


def test_a_stream_that_said_nothing_can_be_ended() -> None:
    (last,) = told(ended("chat", usage=False))
    assert last["choices"] == [{"finish_reason": "length", "index": 0, "delta": {}}]
