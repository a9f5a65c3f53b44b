"""Answers in Ollama's form: lines, calls, counts, what files say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from supervisor.core.doors.ollama_joined import joined
from supervisor.core.doors.ollama_lines import ChatLines, GenerateLines, RawLines, moment
from supervisor.core.doors.ollama_vectors import vectors
from supervisor.core.doors.raw_stream import RawStream
from supervisor.core.doors.turned import Telling
from supervisor.core.recovery.typed import Chunk
from supervisor.core.stream.apis import OLLAMA, OLLAMA_CHAT, RAW
from supervisor.core.stream.filter import StreamFilter
from supervisor.errors import EngineStreamInvalid

TELLING = Telling("m:latest", lambda: 0.0, lambda: (2.5, 0.5))
TIMINGS: Any = {"prompt_n": 3, "cache_n": 4, "prompt_ms": 1.5, "predicted_n": 2, "predicted_ms": 0.25}


def told(data: bytes) -> list[dict[str, Any]]:
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def chunk(delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> Chunk:
    made: Chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}  # type: ignore[typeddict-item] # as engines write it
    return made


def part(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **more, "function": {"arguments": arguments, **more.pop("function", {})}}]}


def test_pieces_become_lines_and_the_last_one_counts() -> None:
    voice = ChatLines(TELLING)
    assert voice.chunk(chunk({"role": "assistant", "content": None})) == b""
    (line,) = told(voice.chunk(chunk({"content": "a\u2028\ud800"})))
    assert line == {
        "model": "m:latest",
        "created_at": "1970-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": "a\u2028?"},
        "done": False,
    }
    assert voice.chunk(chunk({}, "length", timings=TIMINGS)) == b""
    (last,) = told(voice.end())
    assert {name: value for name, value in last.items() if name not in line or name == "done"} == {
        "done": True,
        "done_reason": "length",
        "total_duration": 2_500_000_000,
        "load_duration": 500_000_000,
        "prompt_eval_count": 7,
        "prompt_eval_duration": 1_500_000,
        "eval_count": 2,
        "eval_duration": 250_000,
    }


def test_calls_are_held_until_they_are_whole() -> None:
    voice = ChatLines(TELLING)
    assert voice.chunk(chunk(part(0, '{"a":', id="x", function={"name": "f"}))) == b""
    assert voice.chunk(chunk(part(0, "1}"))) == b""
    (first,) = told(voice.chunk(chunk(part(1, "", id="y", function={"name": "g"}))))
    *_, second, last = told(voice.chunk(chunk({}, "tool_calls")) + voice.end())
    calls = [*first["message"]["tool_calls"], *second["message"]["tool_calls"]]
    assert calls == [
        {"id": "x", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}},
        {"id": "y", "function": {"index": 1, "name": "g", "arguments": {}}},
    ]
    assert last["done_reason"] == "stop"


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "7"])
def test_arguments_are_always_an_object(arguments: str) -> None:
    whole: Any = {"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}}]}
    message: Any = ChatLines(TELLING).whole(whole)["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == {}


def test_an_answer_that_tells_no_times_leaves_them_out() -> None:
    whole: Any = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}
    found = GenerateLines(Telling("m", lambda: 0.0, lambda: (0.0, 0.0))).whole(whole)
    assert set(found) == {"model", "created_at", "response", "done", "done_reason"}


def raw(**event: Any) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def stream() -> RawStream:
    return RawStream(StreamFilter(drop_progress=True, api=RAW), RawLines(TELLING))


def test_events_of_a_completion_become_lines_wherever_they_are_cut() -> None:
    events = (
        b": ping\n\n" + raw(content="a", stop=False) + raw(content="", stop=True, stop_type="limit", timings=TIMINGS)
    )
    for size in (1, 7, len(events)):
        through = stream()
        lines = told(b"".join(through.feed(events[at : at + size]) for at in range(0, len(events), size)))
        assert [line.get("response") for line in lines] == ["a", ""]
        assert (lines[-1]["done_reason"], lines[-1]["eval_count"], through.done) == ("length", 2, True)
        assert through.feed(raw(content="more", stop=False)) == b""
        assert through.ending({"message": "x"}) == b""


def test_a_completion_that_breaks_off_ends_with_an_error() -> None:
    through = stream()
    assert through.feed(raw(content="a", stop=False))
    assert told(through.ending({"message": "gone", "code": "engine_lost"})) == [
        {"error": "gone", "code": "engine_lost"}
    ]
    assert through.done
    failing = stream()
    (said,) = told(failing.feed(raw(error={"message": "no", "code": 500, "type": "server_error"})))
    assert isinstance(said["error"], str)
    with pytest.raises(EngineStreamInvalid):
        stream().feed(raw(content="a", stop=True, timings=7))


def test_errors_and_waiting_are_lines() -> None:
    error = {"message": "no", "code": "does_not_fit"}
    assert OLLAMA.envelope({"error": error}, "id") == {"error": "no", "code": "does_not_fit"}
    assert told(OLLAMA.stream_error(error)) == [{"error": "no", "code": "does_not_fit"}]
    assert (OLLAMA.status(507), OLLAMA.status(404)) == (500, 404)
    assert told(OLLAMA_CHAT.comment("loading"))[0]["message"] == {"role": "assistant", "content": ""}
    assert told(OLLAMA.comment("loading"))[0] == {"response": "", "done": False}
    assert OLLAMA.event(b"{}") == b"{}\n"


def test_vectors_of_nothing_stay_nothing() -> None:
    found: Any = vectors(2, {"data": [{"embedding": [0.0, 0.0, 1.0]}, {"embedding": [3.0, 4.0, 1.0]}]}, TELLING)
    assert found["embeddings"] == [[0.0, 0.0], [0.6, 0.8]]
    assert "prompt_eval_count" not in found


def test_moments_are_those_of_rfc_3339() -> None:
    assert moment(0) == "1970-01-01T00:00:00Z"
    assert moment(1795404837.5) == "2026-11-23T03:33:57.500000Z"


def test_lines_are_joined_as_far_as_they_go() -> None:
    """What is captured of a stream is the object that a client without one would have had."""
    voice = ChatLines(TELLING)
    pieces = [chunk({"reasoning_content": "hm"}), chunk({"content": "a"}), chunk({"content": "b"})]
    calls = [chunk(part(0, "{}", id="x", function={"name": "f"})), chunk({}, "stop", timings=TIMINGS)]
    lines = b"".join(map(voice.chunk, [*pieces, *calls])) + voice.end()
    whole = json.loads(joined(lines))
    assert (whole["done"], whole["eval_count"]) == (True, 2)
    assert whole["message"]["content"] == "ab"
    assert whole["message"]["thinking"] == "hm"
    assert [call["function"]["name"] for call in whole["message"]["tool_calls"]] == ["f"]
    cut = json.loads(joined(lines[: lines.index(b'"b"')]))
    assert (cut["done"], cut["message"]["content"]) == (False, "a")
    for other in (b"", b"text", b'{"a":', b"[1]\n", b"no\n{}\n"):
        assert joined(other) == other
