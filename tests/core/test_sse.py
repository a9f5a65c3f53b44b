from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.stream.sse import SseDecoder, SseEvent, encode
from supervisor.errors import EngineStreamInvalid

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
NAME = st.text(st.characters(exclude_characters="\r\n\0:", exclude_categories=["Cs"]), max_size=6)
FIELD = st.one_of(
    st.builds("{}:{}".format, st.sampled_from(["data", "event", "id", "retry", "", "other"]), LINE), LINE, st.just("")
)


def decode(stream: bytes, cuts: list[int] | None = None) -> list[SseEvent]:
    decoder = SseDecoder()
    edges = [0, *sorted(cuts or []), len(stream)]
    return [event for a, b in pairwise(edges) for event in decoder.feed(stream[a:b])]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data: a\n\n", [SseEvent("a")], id="one"),
        pytest.param(b"data:a\n\ndata:  b\n\n", [SseEvent("a"), SseEvent(" b")], id="one space is dropped"),
        pytest.param(b"data: a\ndata\ndata: b\n\n", [SseEvent("a\n\nb")], id="several lines"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", [SseEvent(x) for x in "abc"], id="line ends"),
        pytest.param(b":\n\n: ping\n\ndata: a\n: inside\n\n", [SseEvent("a")], id="comments"),
        pytest.param(b"event: error\ndata: x\n\ndata: y\n\n", [SseEvent("x", "error"), SseEvent("y")], id="type"),
        pytest.param(b"event: lost\n\ndata: y\n\n", [SseEvent("y")], id="no data, no event"),
        pytest.param(b"id: 7\ndata: x\n\ndata: y\n\n", [SseEvent("x", id="7"), SseEvent("y", id="7")], id="id stays"),
        pytest.param(b"id: 7\0\ndata: x\n\n", [SseEvent("x")], id="an id with a NUL is no id"),
        pytest.param(b"retry: 10\ndata: x\n\n", [SseEvent("x", retry=10)], id="retry"),
        pytest.param(b"retry: -1\ndata: x\n\n", [SseEvent("x")], id="no retry"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [SseEvent("a")], id="byte order mark"),
        pytest.param(b"\n\xef\xbb\xbfdata: a\n\n", [], id="byte order mark too late"),
        pytest.param("data: ü€😀\n\n".encode(), [SseEvent("ü€😀")], id="multi-byte"),
        pytest.param("data: a\u2028\x0b\x0c\x85c\n\n".encode(), [SseEvent("a\u2028\x0b\x0c\x85c")], id="no line ends"),
        pytest.param(b"data: \xff\n\n", [SseEvent("\ufffd")], id="not UTF-8"),
        pytest.param(b"data: a\n\ndata: b", [SseEvent("a")], id="unfinished"),
    ],
)
def test_streams_whole_and_byte_by_byte(stream: bytes, events: list[SseEvent]) -> None:
    assert decode(stream) == events
    assert decode(stream, list(range(len(stream)))) == events


@given(st.data())
def test_any_chunking_gives_the_same_events(data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.tuples(FIELD, st.sampled_from(["\n", "\r\n", "\r"])), max_size=20))
    stream = "".join(text + end for text, end in fields).encode()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert decode(stream, cuts) == decode(stream)


@given(st.lists(st.builds(SseEvent, data=st.lists(LINE, min_size=1).map("\n".join), event=NAME), max_size=5))
def test_what_is_encoded_is_decoded(events: list[SseEvent]) -> None:
    assert decode(b"".join(map(encode, events))) == events


def test_encoding_all_fields() -> None:
    assert encode(SseEvent("a\r\nb\rc", "t", "1", 5)) == b"event: t\nid: 1\nretry: 5\ndata: a\ndata: b\ndata: c\n\n"


@pytest.mark.parametrize(
    ("stream", "whole"),
    [(b"", True), (b"data: a\n\n", True), (b"data: a\n", False), (b"data", False), (b"data: a\n\n:x\n", True)],
)
def test_finish_tells_whether_an_event_was_cut_off(stream: bytes, whole: bool) -> None:
    decoder = SseDecoder()
    decoder.feed(stream)
    assert decoder.finish() is whole


@pytest.mark.parametrize("piece", [b"x" * 10, b"data: xyz\n"])
def test_an_endless_event_is_an_error(piece: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(10):
        assert decoder.feed(piece) == []
    with pytest.raises(EngineStreamInvalid, match="longer than 100 bytes"):
        decoder.feed(piece)


def test_the_limit_is_per_event() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    assert sum(len(decoder.feed(b"data: x\n\n")) for _ in range(100)) == 100
