"""The outline of a large request, against what `json.loads` makes of the whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.requests.outline import Outline
from supervisor.core.requests.outliner import LONG, OutlineLimits, Outliner
from supervisor.errors import InvalidRequest, PayloadTooLarge

MARKER = "0123456789abcdef"
LIMITS = OutlineLimits()
IMAGE = "data:image/png;base64," + "iVBORw0K" * LONG
TEXT = 'Zwölf "Boxkämpfer"\n\\ jagen 🦊\ud83d\ude00' * LONG


def outline_of(body: bytes, limits: OutlineLimits = LIMITS, cuts: tuple[int, ...] = ()) -> Outline:
    """The outline of a body that arrives in pieces, cut at these places."""
    outliner = Outliner(limits)
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for start, stop in pairwise(edges):
        piece, at = body[start:stop], 0
        while at < len(piece):
            at = outliner.feed(piece, at)
    return outliner.finish(memoryview(body), MARKER)


def joined(outline: Outline, payload: bytes) -> bytes:
    """What the engine gets."""
    pieces = outline.pieces(payload)
    assert not isinstance(pieces, bytes)
    return b"".join(pieces)


def left_out(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where marks stand."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from left_out(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from left_out(one, (*path, index))
    elif isinstance(value, str) and MARKER in value:
        yield path


def places(request: dict[str, Any]) -> set[tuple[str | int, ...]]:
    """Where something is left out of a request, of which the rest is as it was, and the whole the same again."""
    body = json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass")
    outline = outline_of(body)
    assert joined(outline, outline.text) == body
    fields = json.loads(outline.text)
    changed = joined(outline, json.dumps({"first": 1, **fields, "last": 2}).encode())
    assert json.loads(changed) == {"first": 1, **json.loads(body), "last": 2}
    return set(left_out(fields))


@pytest.mark.parametrize("long", [IMAGE, TEXT.encode("utf-16", "surrogatepass").decode("utf-16")])
def test_long_texts_of_messages_are_left_out_wherever_the_apis_have_them(long: str) -> None:
    chat = {
        "messages": [
            {"role": "system", "content": long},
            {"role": "user", "content": [{"type": "text", "text": long}, {"image_url": {"url": long}}]},
            {"content": [{"input_audio": {"data": long}}, {"file": {"file_data": long}}]},
            {"role": "assistant", "reasoning_content": long, "content": "short"},
        ]
    }
    assert places(chat) == {
        ("messages", 0, "content"),
        ("messages", 1, "content", 0, "text"),
        ("messages", 1, "content", 1, "image_url", "url"),
        ("messages", 2, "content", 0, "input_audio", "data"),
        ("messages", 2, "content", 1, "file", "file_data"),
        ("messages", 3, "reasoning_content"),
    }
    blocks = [
        {"type": "image", "source": {"data": long}},
        {"type": "thinking", "thinking": long},
        {"type": "tool_result", "content": [{"type": "text", "text": long}]},
    ]
    assert places({"messages": [{"content": blocks}]}) == {
        ("messages", 0, "content", 0, "source", "data"),
        ("messages", 0, "content", 1, "thinking"),
        ("messages", 0, "content", 2, "content", 0, "text"),
    }
    items = [{"type": "message", "content": long}, {"content": [{"image_url": long}]}, {"output": long}]
    assert places({"input": items}) == {
        ("input", 0, "content"),
        ("input", 1, "content", 0, "image_url"),
        ("input", 2, "output"),
    }
    assert places({"input": long}) == {("input",)}
    assert places({"input": [long, "short", long]}) == {("input", 0), ("input", 2)}
    assert places({"prompt": long}) == {("prompt",)}


@pytest.mark.parametrize(
    "request_of",
    [
        lambda long: {"messages": [{"tool_calls": [{"function": {"name": "f", "arguments": long}}]}]},
        lambda long: {"messages": [{"content": [{"type": "tool_use", "input": {"content": long, "text": [long]}}]}]},
        lambda long: {"input": [{"type": "function_call", "arguments": long}]},
        lambda long: {"tools": [{"function": {"name": "f", "description": long, "content": long}}]},
        lambda long: {"system": long, "instructions": long, "content": long, "model": long},
        lambda long: {"metadata": {"messages": [{"content": long}], "input": long}},
        lambda long: {"messages": [{"unknown": {"content": long}}, [{"content": long}]]},
        lambda long: {"messages": {long: {"content": "short"}}},
    ],
)
def test_what_recovery_reads_or_repeats_is_kept(request_of: Any) -> None:
    request = request_of(IMAGE)
    found = places(request)
    if "messages" in request and isinstance(request["messages"], list) and len(request["messages"]) > 1:
        assert ("messages", 0, "unknown", "content") not in found
    else:
        assert not found


def test_what_is_short_is_kept() -> None:
    at_most = "x" * (LONG - 1)
    assert places({"messages": [{"content": at_most}]}) == set()
    assert places({"messages": [{"content": at_most + "x"}]}) == {("messages", 0, "content")}


def test_keys_count_as_they_are_read_and_the_last_of_two_counts() -> None:
    body = b'{"mess\\u0061ges": [{"c\\u006fntent": "%b"}], "messages": [], "stream": false, "stream": true}' % (
        b"x" * LONG
    )
    outline = outline_of(body)
    assert json.loads(outline.text) == {"messages": [], "stream": True}
    assert len(outline.text) < LONG
    assert joined(outline, outline.text) == body


SMALL = OutlineLimits(kept=4096, values=60, turn=3)


@pytest.mark.parametrize("value", [[1] * 5000, "y" * 5000, [[]] * 70, {str(n): n for n in range(70)}, ["a"] * 70])
def test_a_field_that_stays_large_is_left_out_as_a_whole(value: Any) -> None:
    request = {"model": "m", "numbers": value, "messages": [{"content": IMAGE}], "stream": True}
    body = json.dumps(request).encode()
    outline = outline_of(body, SMALL)
    fields = json.loads(outline.text)
    assert outline.opaque
    assert set(left_out(fields)) == {("numbers",), ("messages", 0, "content")}
    assert (fields["model"], fields["stream"]) == ("m", True)
    assert joined(outline, outline.text) == body
    assert json.loads(joined(outline, json.dumps(fields).encode())) == request


def test_what_follows_a_field_that_just_fits_is_kept() -> None:
    for count in range(10, 40):
        request = {"messages": [{"role": "user"}] * count, "model": "m", "stop": ["a", "b"], "stream": True}
        outline = outline_of(json.dumps(request).encode(), SMALL)
        assert set(left_out(json.loads(outline.text))) <= {("messages",)}


def test_messages_can_be_such_a_field() -> None:
    request = {"messages": [{"role": "user", "content": IMAGE}] * 30, "model": "m"}
    outline = outline_of(json.dumps(request).encode(), SMALL)
    assert set(left_out(json.loads(outline.text))) == {("messages",)}
    assert json.loads(joined(outline, outline.text)) == request


_KEYS = st.sampled_from(["messages", "content", "input", "prompt", "text", "x", 'q"\\', "tools", "arguments"])
_LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    *(st.text(max_size=8), st.builds("".join, st.lists(st.sampled_from(['"', "\\", "{", "]", "ä", "x" * 600])))),
)
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(_KEYS, inner, max_size=5))
_LIMITS = st.builds(OutlineLimits, kept=st.integers(200, 4000), values=st.integers(4, 40), turn=st.integers(1, 8))


@given(st.dictionaries(_KEYS, _VALUES, max_size=6), _LIMITS, st.lists(st.integers(0)), st.booleans(), st.booleans())
def test_any_request_comes_out_as_it_went_in(
    request: dict[str, Any], limits: OutlineLimits, cuts: list[int], ascii_only: bool, spaced: bool
) -> None:
    body = json.dumps(request, ensure_ascii=ascii_only, indent=2 if spaced else None).encode()
    try:
        outline = outline_of(body, limits, tuple(cuts))
    except PayloadTooLarge:  # of names, numbers and space
        assert len(body) > 2 * limits.kept
        return
    fields = json.loads(outline.text)
    assert joined(outline, outline.text) == body
    assert json.loads(joined(outline, json.dumps(fields).encode())) == request
    assert len(outline.text) <= 2 * limits.kept + 2 * LONG * (len(request) + 1)
    assert outline.opaque or all(path[0] in {"messages", "input", "prompt"} for path in left_out(fields))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"   ", b"[]", b"1", b'"text"', b"null", b"{", b'{"a": [', b'{"a": "', b'{"a": "\\', b"}", b"{}]"),
        *(b"{} {}", b"{}1", b"\xff{}", '{"a": 1}'.encode("utf-16")),
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"is not valid JSON: \w+|must be a JSON object"):
        outline_of(body)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert outline_of(b'\xef\xbb\xbf{"a": 1}').text == b'\xef\xbb\xbf{"a": 1}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"x": [' + b"[]," * 2_000_000 + b"[]]}",
        b'{"x": [' + b'{"a":1},' * 800_000 + b"0]}",
        b'{"messages": [' + b'"",' * 2_000_000 + b'""]}',
        b'{"x": [' + b"1," * 9_000_000 + b"1]}",
        b"{" + b",".join(b'"%d":1' % number for number in range(2000)) + b"}",
        b"{" + b'"a":1,' * 2000 + b'"a":1}',
        b'{"x": ' + b"9" * 9_000_000 + b"}",
        b'{"' + b"x" * 9_000_000 + b'": 1}',
        b'{"x": 1' + b" " * 9_000_000 + b"}",
    ],
    ids=["arrays", "objects", "strings", "numbers", "fields", "one field often", "a number", "a key", "space"],
)
def test_too_much_of_anything_is_refused(body: bytes) -> None:
    with pytest.raises(PayloadTooLarge):
        outline_of(body, cuts=tuple(range(0, len(body), 1 << 16)))


@pytest.mark.parametrize("opener", [b"[", b'{"a":'])
def test_nesting_without_end_is_refused(opener: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"nests arrays and objects more than \d+ deep"):
        outline_of(b'{"x":' + opener * 1000)


def test_no_step_reads_more_than_its_turn() -> None:
    body = b'{"x": [' + b"[]," * 10_000 + b"[]]}"
    outliner = Outliner(LIMITS)
    at = steps = 0
    while at < len(body):
        before, at = at, outliner.feed(body, at)
        assert body.count(b"[", before, at) <= LIMITS.turn
        steps += 1
    assert steps >= 20_000 / LIMITS.turn


@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_beginnings_of_texts_are_those_that_the_whole_has(ascii_only: bool) -> None:
    text = 'é"\\\n🦊' * 10_000
    request = {"messages": [{"content": [{"type": "text", "text": text}]}], "prompt": text, "numbers": [1] * 9999}
    body = json.dumps(request, ensure_ascii=ascii_only).encode()
    outline = outline_of(body, OutlineLimits(kept=4096))
    heads: Any = outline.heads(json.loads(outline.text), 4096)
    assert heads["messages"][0]["content"][0]["text"] == text[:4096]
    assert heads["prompt"] == text[:4096]
    assert heads["numbers"].startswith("[1, 1")


def test_numbers_without_end_are_left_out_for_they_cost_as_much_as_what_is_built_of_them() -> None:
    few, many = (b'{"model":"m","x":[%b1]}' % (b"1e23," * count) for count in (400_000, 700_000))
    for body, opaque in ((few, False), (many, True)):
        outliner, at = Outliner(), 0
        while at < len(body):
            at = outliner.feed(body, at)
        outline = outliner.finish(memoryview(body), "a" * 16)
        assert outline.opaque == opaque
        sent = outline.pieces(outline.text)
        assert (sent if isinstance(sent, bytes) else b"".join(sent)) == body
