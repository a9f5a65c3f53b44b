"""Arguments of earlier calls: what an engine could not read is mended or emptied, all else is left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.recovery.arguments import is_object
from supervisor.core.recovery.history import mended_arguments, mended_input, mended_messages


@pytest.mark.parametrize(
    ("written", "mended"),
    [
        ('{"a":  1}', '{"a":  1}'),
        ("", "{}"),
        ("null", "{}"),
        ("[1]", "{}"),
        ('{"a": "b', "{}"),
        ("{'a': True}", '{"a": true}'),
        ('{"a": "x\ny"}', '{"a": "x\\ny"}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        (json.dumps(json.dumps(json.dumps({"a": 1}))), "{}"),
        ('{"a": NaN}', "{}"),
        ("{{}{}", "{}"),
    ],
)
def test_arguments(written: str, mended: str) -> None:
    assert mended_arguments(written) == mended


@given(st.text(alphabet="{}[]\"':,ab1\\\n ", max_size=30))
def test_any_text_becomes_an_object(text: str) -> None:
    assert isinstance(json.loads(mended_arguments(text)), dict)


def message(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}


def test_only_what_is_broken_changes() -> None:
    good = [{"role": "user", "content": "x"}, message("{}"), message({"a": 1}), "odd", {"tool_calls": [1, {}]}]
    assert mended_messages(good) is None
    assert mended_messages("no list") is None
    assert mended_messages([*good, message("{")]) == [*good, message("{}")]
    assert mended_messages([message(None)]) == [message("{}")]


def test_items_of_the_other_api() -> None:
    whole = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    broken = {**whole, "arguments": "{'a': 1"}
    assert mended_input({"input": [whole, {"role": "user", "content": "Hi"}]}) == {}
    assert mended_input({"input": "Hi"}) == {}
    assert mended_input({"input": [whole, broken]}) == {"input": [whole, {**broken, "arguments": '{"a": 1}'}]}


def test_very_many_broken_arguments_are_emptied() -> None:
    broken = [{"tool_calls": [{"function": {"name": "f", "arguments": '{"a": [' + "1," * 5000}}]} for _ in range(3)]
    mended: Any = mended_messages([*broken, {"tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}])
    assert mended is not None
    arguments = [json.loads(message["tool_calls"][0]["function"]["arguments"]) for message in mended]
    assert len(arguments[0]["a"]) == 5000
    assert arguments[1:] == [{}, {}, {"a": 1}]


def test_brackets_of_broken_arguments_count_too() -> None:
    def mended(objects: int) -> Any:
        given: Any = mended_messages([message('{"a": [' + "{}" * objects)])
        return json.loads(given[0]["tool_calls"][0]["function"]["arguments"])

    assert mended(1000) == {"a": [{}] * 1000}
    assert mended(5000) == {}


@pytest.mark.parametrize("text", ['{"a": ' + "[" * 100_000, '{"a": "\\ud800"}', '{"a": NaN}', '{"a": "\n"}', "[]", ""])
def test_what_the_engine_could_not_read_is_no_object(text: str) -> None:
    assert not is_object(text)
