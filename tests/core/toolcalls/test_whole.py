"""A whole answer at once, and what little of a call's text decides about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.toolcalls import LeftAsText
from supervisor.core.toolcalls.jsontext import MAX_DEPTH
from supervisor.core.toolcalls.literals import INVALID, read_literal
from supervisor.core.toolcalls.whole import Answer, Request, finish_reason_of, read_answer
from tests.core.toolcalls.corpus import TOOLS

CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


def read(*content: str, reasoning: str = "") -> Answer:
    return read_answer(Request(TOOLS), content, [reasoning], "stop")


def test_an_answer_has_text_calls_and_what_was_dropped() -> None:
    answer = read("I lo", f"ok. <tool_call>{CALL}</tool_", "call>", reasoning="Hm.")
    assert (answer.content, answer.reasoning) == ("I look. ", "Hm.")
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == [("get_weather", {"city": "Paris"})]
    assert "".join(answer.dropped) == f"<tool_call>{CALL}</tool_call>"
    assert answer.left == []
    assert (finish_reason_of(answer, "stop"), finish_reason_of(answer, "length")) == ("tool_calls", "length")


def test_an_answer_without_calls_says_what_stayed_text() -> None:
    answer = read("See <tool_call>, they say.")
    assert (answer.content, answer.calls, answer.dropped) == ("See <tool_call>, they say.", [], [])
    assert answer.left == [LeftAsText("<tool_call>", "not_a_call")]
    assert finish_reason_of(answer, "stop") == "stop"


@pytest.mark.parametrize("around", [("```tool_code\n", "\n```"), ("<function_calls>", "</function_calls>")])
@pytest.mark.parametrize("between", [";", ",", " ; ", "\n"])
def test_statements_lose_no_character_to_what_divides_them(between: str, around: tuple[str, str]) -> None:
    calls = ('get_weather(city="Paris")', 'get_weather(city="Rome")')
    answer = read(between.join(calls).join(around))
    assert [json.loads(call.arguments) for call in answer.calls] == [{"city": "Paris"}, {"city": "Rome"}]


@pytest.mark.parametrize(
    ("kind", "is_call"),
    [
        ("function", True),
        ("function_call", True),
        ("tool_call", True),
        ("tool_use", True),
        ("text", False),
        ("", False),
    ],
)
def test_an_object_that_says_its_type_is_a_call_of_these(kind: str, is_call: bool) -> None:
    assert bool(read(f'<tool_call>{{"type": "{kind}", {CALL[1:]}</tool_call>').calls) is is_call


@pytest.mark.parametrize("name", ["name", "tool_name"])
@pytest.mark.parametrize("arguments", ["arguments", "parameters", "args"])
@pytest.mark.parametrize("number", ["id", "tool_call_id"])
def test_keys_of_a_call_have_these_names(name: str, arguments: str, number: str) -> None:
    [call] = read(f'<tool_call>{{"{name}": "ping", "{arguments}": {{}}, "{number}": "c1"}}</tool_call>').calls
    assert (call.name, call.arguments, call.id) == ("ping", "{}", "c1")


@pytest.mark.parametrize(("end", "repaired"), [("<|close|>call<|sep|>", False), ("", True)])
def test_a_kimi_call_without_its_end_counts_as_repaired(end: str, repaired: bool) -> None:
    argument = '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
    [call] = read(f'<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>{argument}{end}').calls
    assert (json.loads(call.arguments), call.repaired) == ({"city": "Paris"}, repaired)


M3 = "]<]minimax[>["


@pytest.mark.parametrize(
    "rest",
    [
        f"{M3}</tool_call>",
        "",
        f'{M3}<invoke name="get_time">',
        f"Paris{M3}</invoke>",
        f"{M3}<city>Paris{M3}</city>more{M3}</invoke>{M3}</tool_call>",
    ],
)
def test_an_invocation_without_an_end_or_an_argument_is_no_call_of_a_tool_that_is_missing(rest: str) -> None:
    text = f'{M3}<tool_call>{M3}<invoke name="get_weather">{rest}'
    answer = read(text)
    assert (answer.content, answer.calls) == (text, [])
    assert {left.why for left in answer.left} == {"not_a_call"}


@pytest.mark.parametrize("line", ["`x````", "a ~~~", "a ```", "Use `x` ```", "~~ ~~~", "``x`` ~~~"])
def test_a_fence_begins_a_line(line: str) -> None:
    """What looks like one within a line hides no call on the next."""
    assert [call.name for call in read(f"{line}\n<tool_call>{CALL}</tool_call>").calls] == ["get_weather"]


@pytest.mark.parametrize("text", ["get_weather(", "[1, x]", "{1", "'a", "Paris", "", "1 2"])
def test_what_is_no_literal_is_not_the_literal_none(text: str) -> None:
    assert read_literal(text) is INVALID
    assert read_literal("None") is None


def nested(depth: int) -> tuple[str, Any]:
    return "[" * depth + "1" + "]" * depth, json.loads("[" * depth + "1" + "]" * depth)


@pytest.mark.parametrize(("around", "depth"), [("list", MAX_DEPTH - 1), ("list", MAX_DEPTH)])
def test_a_gemma_call_is_as_deep_as_any_other(around: str, depth: int) -> None:
    """Its braces count as one."""
    text, value = nested(depth)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    answer = read_answer(Request(tools), [f"<|tool_call>call:f{{a:{text}}}<tool_call|>"], [], "stop")
    found = [json.loads(call.arguments) for call in answer.calls]
    assert found == ([{"a": value}] if depth < MAX_DEPTH else [])


@pytest.mark.parametrize(("written", "city"), [('"Paris"', "Paris"), ('"Paris" north', '"Paris" north')])
def test_a_gemma_string_in_plain_quotes_is_one_where_nothing_follows(written: str, city: str) -> None:
    [call] = read(f"<|tool_call>call:get_weather{{city:{written}}}<tool_call|>").calls
    assert json.loads(call.arguments) == {"city": city}
