"""Whatever is wrong with others' JSON is one error, wherever it arrives."""

from __future__ import annotations

import ast
import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.errors import error_in
from supervisor.core.engine_output.statelines import parse_state
from supervisor.core.recovery import ChatRecovery, RecoveredStream, Tally
from supervisor.core.recovery.choice import same_call
from supervisor.core.recovery.messages_voice import MessagesVoice
from supervisor.core.stream.chat import ChatFold
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.stream.fold import StreamFold, said_by_engine
from supervisor.core.text.foreignjson import MOST_NESTED, NotJson, compact, parse, parse_pythons, typed, written
from supervisor.core.toolcalls import Options
from supervisor.core.toolcalls.whole import Request
from supervisor.errors import EngineStreamInvalid
from tests.support.paths import ROOT


def nested(depth: int) -> str:
    return '{"a":' * (depth // 2) + "[" * (depth - depth // 2) + "]" * (depth - depth // 2) + "}" * (depth // 2)


DEEP = [nested(MOST_NESTED + 1), nested(100_000), "[" * 100_000]
BROKEN = [
    *DEEP,
    "",
    "{",
    '{"a": 1,}',
    "1" * 5000,
    "NaN",
    '{"a": [-Infinity]}',
    b"Infinity",
    "\ud800".encode("utf-8", "surrogatepass"),
    b"\xff",
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_every_failure_is_the_same(text: str | bytes) -> None:
    with pytest.raises(NotJson):
        parse(text)


def test_what_can_be_worked_with_is_read() -> None:
    value = parse(nested(MOST_NESTED))
    assert json.loads(json.dumps(value)) == value
    flat = json.dumps({"text": "[" * 10_000, "many": [[]] * 10_000})
    assert parse(flat) == parse(flat.encode()) == json.loads(flat)


def test_what_python_wrote_may_hold_its_constants_and_nothing_else_that_is_none() -> None:
    assert parse_pythons('{"time_step_limit": [0.0, Infinity]}') == {"time_step_limit": [0.0, float("inf")]}
    for text in (*DEEP, "", "{", "1" * 5000):
        with pytest.raises(NotJson):
            parse_pythons(text)


def test_what_is_written_is_json_whatever_numbers_there_are() -> None:
    value = parse('{"a": [1e999, -1e999, 1.5], "b": {"c": 1e400}}')
    assert compact(value) == '{"a":[null,null,1.5],"b":{"c":null}}'
    assert written(value) == compact(value).encode()


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_json_of_an_engine_never_ends_in_an_error_of_ours(text: str) -> None:
    event = f"data: {text}\n\n".encode()
    with pytest.raises(EngineStreamInvalid, match="is not JSON"):
        StreamFold(ChatFold()).feed(event)
    with pytest.raises(EngineStreamInvalid, match="The answer is not JSON"):
        said_by_engine(text, "The answer")
    recovery = ChatRecovery(Request([], None, Options()), lambda: "id", Tally())
    stream = RecoveredStream(StreamFilter(drop_progress=True), recovery, lambda: 0.0)
    assert stream.feed(event) == event
    assert StreamFilter(drop_progress=True).feed(b'data: {"prompt_progress":' + text.encode() + b"\n\n")
    assert error_in(text.encode()) == {"message": text[:500]}
    assert parse_state(f"cmd_child_to_router:state:{text}".encode()) is None


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_arguments_of_a_call_are_compared_and_said(text: str) -> None:
    assert same_call("f", text, "f", text)
    assert not same_call("f", text, "f", "{}")
    function = {"name": "f", "arguments": text}
    message: Any = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}
    said: Any = MessagesVoice().whole({"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {}})
    assert next(one for one in said["content"] if one["type"] == "tool_use")["input"] == {}


def test_calls_that_would_take_long_to_compare_are_compared_as_text() -> None:
    long = json.dumps({"a": [[]] * 100_000})
    assert same_call("f", long, "f", long)
    assert not same_call("f", long, "f", long.replace(" ", ""))
    assert same_call("f", '{"a": 1, "b": 2}', "f", '{"b":2,"a":1}')


TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
NUMBERS = st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,3})?", fullmatch=True).map(str.encode)
PIECES = st.lists(
    st.sampled_from([b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\u0041", b"\\ud800", b"\\", b" ", b"1", b"-"])
)


def python_s(text: bytes) -> object:
    """What Python's own parser makes of a text; the error's class where it refuses it."""
    try:
        return json.loads(text, parse_constant=lambda constant: int(constant))  # which fails
    except (ValueError, RecursionError):
        return NotJson


@given(TEXTS | NUMBERS | PIECES.map(b"".join), st.data())
def test_texts_are_read_as_python_s_parser_reads_them(text: bytes, data: st.DataObject) -> None:
    if text and data.draw(st.booleans(), "a byte changes"):
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.binary(max_size=1)) + text[at + 1 :]
    try:
        found = parse(text)
    except NotJson:
        found = NotJson
    assert repr(found) == repr(python_s(text))  # as True is 1, and 1.0 as well


def test_what_is_no_json_of_a_kind_is_one_error() -> None:
    for said in (b"", b"\xff", b'{"number":"\xff"}', b'{"number":-1}', b"[" * 100_000, b'{"x":' + b"[" * 100_000):
        with pytest.raises(NotJson):
            typed(said, _Counted)
    assert typed(b'{"number":7,"x":[]}', _Counted) == _Counted(7)


class _Counted(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(ge=0)]


def test_nobody_takes_msgspec_s_errors_for_all_that_it_raises() -> None:
    """What is no UTF-8, and what is nested too deeply, it tells by errors that are none of its own."""
    for file in (ROOT / "supervisor").rglob("*.py"):
        handlers = [
            one.type for one in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(one, ast.ExceptHandler)
        ]
        named = {ast.unparse(part) for one in handlers if one is not None for part in ast.walk(one)}
        assert "msgspec.DecodeError" not in named, f"{file}: catch ValueError, or let `foreignjson.typed` read it"
