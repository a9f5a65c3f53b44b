from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.stream.chat import ChatFold
from supervisor.core.stream.completions import CompletionFold
from supervisor.core.stream.fold import ChunkFold, Collector, StreamFold
from supervisor.core.stream.raw_completions import RawFold
from supervisor.core.stream.responses import ResponsesFold
from supervisor.core.stream.sse import SseDecoder
from supervisor.errors import EngineLost, EngineStreamInvalid

CHUNKS: list[object] = [
    {"id": "c1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}], "prompt_progress": {}},
    {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Grüße "}}]},
    {"id": "c1", "choices": [{"index": 0, "delta": {"content": "😀"}}]},
    {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"id": "c1", "choices": [], "usage": {"total_tokens": 3}, "timings": {"n": 1}},
]
STREAM = ":\n\n".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in CHUNKS).encode()
DONE = b"data: [DONE]\n\n"
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Grüße 😀"}}],
    "usage": {"total_tokens": 3},
    "timings": {"n": 1},
}


@given(st.lists(st.integers(0, len(STREAM + DONE)), max_size=10))
def test_any_chunking_gives_the_same_answer(cuts: list[int]) -> None:
    fold = StreamFold(ChatFold())
    edges = [0, *sorted(cuts), len(STREAM + DONE)]
    for a, b in pairwise(edges):
        fold.feed((STREAM + DONE)[a:b])
    assert fold.response() == ANSWER


@given(st.integers(0, len(STREAM + DONE) - 1))
def test_cut_off_anywhere_it_is_a_lost_engine_and_nothing_else(size: int) -> None:
    fold = StreamFold(ChatFold())
    fold.feed((STREAM + DONE)[:size])
    assert not fold.done
    with pytest.raises(EngineLost, match="broke off"):
        fold.response()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "index", "delta", "tool_calls", "function", "text", "x"]), inner)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("kind", [ChatFold, CompletionFold])
@given(chunk=st.dictionaries(st.sampled_from(["choices", "usage", "id"]), JSON))
def test_a_chunk_of_any_shape_raises_only_the_documented_error(
    kind: type[ChatFold | CompletionFold], chunk: Mapping[str, object]
) -> None:
    fold: ChunkFold = kind()
    try:
        fold.feed(chunk)
    except EngineStreamInvalid:
        return
    json.dumps(fold.response())


@pytest.mark.parametrize("index", [b"1e999", b"NaN", b'"x"', b"[]"])
def test_a_choice_with_an_index_that_is_none(index: bytes) -> None:
    with pytest.raises(EngineStreamInvalid, match=r"unknown shape|is not JSON"):
        StreamFold(ChatFold()).feed(b'data: {"choices": [{"index": ' + index + b"}]}\n\n")


@pytest.mark.parametrize("line", [b"data: {", b"data: []", b"data: 3", b"data: nonsense", b"data: " + b"[" * 100_000])
def test_what_is_no_chunk_is_an_error(line: bytes) -> None:
    with pytest.raises(EngineStreamInvalid, match="not"):
        StreamFold(ChatFold()).feed(line + b"\n\n")


def test_the_engines_start_marker_is_no_chunk() -> None:
    fold = StreamFold(ChatFold())
    fold.feed(b"data: null\n\n" + STREAM + DONE)
    assert fold.response() == ANSWER


@pytest.mark.parametrize("end", [b"", DONE])
def test_an_error_in_mid_stream(end: bytes) -> None:
    error = {"code": 500, "message": "does not match the format", "type": "server_error"}
    fold = StreamFold(ChatFold())
    fold.feed(STREAM + b"data: " + json.dumps({"error": error}).encode() + b"\n\n" + end)
    assert fold.error == error
    with pytest.raises(EngineLost, match="does not match the format"):
        fold.response()


def test_the_decoder_can_be_given() -> None:
    with pytest.raises(EngineStreamInvalid, match="longer than 5 bytes"):
        StreamFold(ChatFold(), SseDecoder(max_event_bytes=5)).feed(STREAM)


def test_the_answer_was_made_when_its_first_chunk_was() -> None:
    fold = ChatFold()
    for created in (5, 6, 9):
        fold.feed({"created": created, "choices": []})
    assert fold.response()["created"] == 5


@pytest.mark.parametrize("new", [RawFold, ResponsesFold])
@given(chunk=JSON)
def test_what_is_no_event_of_other_answers_is_said_to_be_none(new: Callable[[], Collector], chunk: object) -> None:
    fold = StreamFold(new())
    data = {"type": "response.completed", "index": 0, **(chunk if isinstance(chunk, dict) else {"response": chunk})}
    with suppress(EngineStreamInvalid):
        fold.feed(f"data: {json.dumps(data)}\n\n".encode())
    assert not fold.done
    with pytest.raises(EngineLost):
        fold.response()


def test_debugging_of_a_chat_leaves_out_the_text_that_is_not_known() -> None:
    told = {"content": "", "tokens": [], "stop": True, "generation_settings": {"stream": True, "seed": 1}}
    chat, text = ChatFold(), CompletionFold()
    chat.feed({"choices": [{"index": 0, "delta": {"content": "Hi"}}], "__verbose": told})
    text.feed({"choices": [{"index": 0, "text": "Hi"}], "__verbose": told})
    settings = {"stream": False, "seed": 1}
    assert chat.response()["__verbose"] == {"stop": True, "generation_settings": settings}
    assert text.response()["__verbose"] == {**told, "content": "Hi", "generation_settings": settings}


def test_what_comes_with_each_token_of_an_answer_has_an_end() -> None:
    fold = StreamFold(RawFold())
    event = {"index": 0, "content": "x", "stop": False, "completion_probabilities": [{"token": "x" * (1 << 20)}]}
    data = f"data: {json.dumps(event)}\n\n".encode()
    for _ in range(60):
        fold.feed(data)
    with pytest.raises(EngineStreamInvalid, match="too large"):
        fold.feed(data * 10)


@pytest.mark.parametrize("size", [1, 900])
def test_all_events_of_an_answer_have_an_end(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each makes a value, however small it is."""
    monkeypatch.setattr("supervisor.core.stream.fold._MOST", 1 << 20)
    fold = StreamFold(RawFold())
    data = f"data: {json.dumps({'index': 0, 'content': 'x' * size, 'stop': False})}\n\n".encode()
    for _ in range(1000):
        fold.feed(data)
    with pytest.raises(EngineStreamInvalid, match="too large"):
        fold.feed(data * 4000)


def test_the_text_of_an_answer_may_be_long() -> None:
    fold = StreamFold(RawFold())
    data = f"data: {json.dumps({'index': 0, 'content': 'x' * 900, 'stop': False})}\n\n".encode() * 100
    for _ in range(1000):
        fold.feed(data)
