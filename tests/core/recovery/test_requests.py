"""Requests of the other APIs as requests for a chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.recovery.forms import MESSAGES_FORM, RESPONSES_FORM
from supervisor.core.recovery.messages_request import chat_of_messages
from supervisor.core.recovery.policy import offers_tools, only_named
from supervisor.core.recovery.responses_request import chat_of_responses
from tests.core.toolcalls.corpus import TOOLS

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def test_a_conversation_of_messages() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Zürich"}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sunny"}]},
        {"type": "text", "text": "And now?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]
    chat = chat_of_messages({
        "model": "m",
        "max_tokens": 5,
        "stop_sequences": ["x"],
        "system": [{"type": "text", "text": "Be brief."}],
        "thinking": {"type": "enabled", "budget_tokens": 7},
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results},
        ],
        "tools": [{"name": "get_weather", "description": "d", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "cache_control": "unknown to a chat",
    })
    assert chat is not None
    messages = chat.pop("messages")
    function = {"name": "get_weather", "arguments": json.dumps({"city": "Zürich"}, ensure_ascii=False)}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}],
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
            "reasoning_content": "Hm.",
        },
        {"role": "user", "content": [{"type": "text", "text": "And now?"}, picture]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ]
    tool = {"name": "get_weather", "description": "d", "parameters": SCHEMA}
    assert chat == {
        "model": "m",
        "max_tokens": 5,
        "stop": ["x"],
        "thinking_budget_tokens": 7,
        "tools": [{"type": "function", "function": tool}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


def test_a_stamp_that_changes_with_every_request_is_made_even() -> None:
    system = "x-anthropic-billing-header: v=1; cch=a5145;You are"
    chat: Any = chat_of_messages({"system": system, "messages": []})
    assert chat is not None
    assert chat["messages"][0]["content"] == "x-anthropic-billing-header: v=1; cch=fffff;You are"
    other: Any = chat_of_messages({"system": "cch=a5145;", "messages": []})
    assert other is not None
    assert other["messages"][0]["content"] == "cch=a5145;"


@pytest.mark.parametrize("asked", [{}, {"messages": "Hi"}, {"messages": ["Hi"]}, {"messages": [{"content": ["x"]}]}])
def test_messages_that_only_the_engine_can_judge(asked: dict[str, Any]) -> None:
    assert chat_of_messages(asked) is None


def test_a_conversation_of_items() -> None:
    chat = chat_of_responses({
        "model": "m",
        "instructions": "Be brief.",
        "max_output_tokens": 5,
        "temperature": 0,
        "reasoning": {"effort": "low"},
        "tool_choice": {"type": "function", "name": "ping"},
        "tools": [{"type": "function", "name": "ping", "parameters": SCHEMA}, {"type": "web_search"}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "a", "name": "ping", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "ping", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "pong"},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "pong"}]},
            {"type": "function_call", "call_id": "c", "name": "ping", "arguments": "{}"},
        ],
    })
    assert chat is not None
    messages = chat.pop("messages")
    calls = [
        {"id": one, "type": "function", "function": {"name": "ping", "arguments": "{}"}} for one in ("a", "b", "c")
    ]
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}],
            "reasoning_content": "Hm.",
            "tool_calls": calls[:2],
        },
        {"role": "tool", "tool_call_id": "a", "content": "pong"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "pong"}]},
        {"role": "assistant", "content": None, "tool_calls": calls[2:]},
    ]
    assert chat == {
        "model": "m",
        "max_tokens": 5,
        "temperature": 0,
        "reasoning_effort": "low",
        "tools": [{"type": "function", "function": {"name": "ping", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "ping"}},
    }


def test_what_an_assistant_says_in_a_row_is_one_message() -> None:
    thoughts = [{"type": "reasoning_text", "text": text} for text in ("One, ", "two.")]
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There."}]},
        {"type": "reasoning", "content": thoughts},
        {"type": "reasoning", "summary": [], "content": []},
    ]
    chat: Any = chat_of_responses({"input": [*items, {"role": "user", "content": "Hi"}, items[0]]})
    assert chat is not None
    said, user, again = chat["messages"]
    assert [part["text"] for part in said["content"]] == ["I look.", "There."]
    assert said["reasoning_content"] == "One, two.", "and one without a text takes nothing away"
    assert user["role"] == "user"
    assert again == {"role": "assistant", "content": [{"type": "text", "text": "I look."}]}


def test_a_text_is_what_a_user_says_and_parts_have_several_names() -> None:
    chat = chat_of_responses({"input": "Hi"})
    assert chat is not None
    assert chat["messages"] == [{"role": "user", "content": "Hi"}]
    parts = [{"type": kind, "text": kind} for kind in ("input_text", "output_text", "text")]
    chat = chat_of_responses({"input": [{"role": "user", "content": [*parts, {"type": "refusal", "refusal": "no"}]}]})
    assert chat is not None
    texts = [{"type": "text", "text": text} for text in ("input_text", "output_text", "text", "no")]
    assert chat["messages"] == [{"role": "user", "content": texts}]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"input": 3},
        {"input": "Hi", "previous_response_id": "r"},
        {"input": [{"type": "item_reference", "id": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
        {"input": [{"type": "function_call", "name": "x"}]},
        {"input": "Hi", "tools": ["x"]},
    ],
)
def test_items_that_only_the_engine_can_judge(asked: dict[str, Any]) -> None:
    assert chat_of_responses(asked) is None


def test_a_named_tool_becomes_the_only_one() -> None:
    named: Any = only_named({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "ping"}}})
    assert named["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in named["tools"]] == ["ping"]
    for choice in ("auto", None, {"type": "function", "function": {"name": "nobody"}}, {"type": "function"}):
        assert only_named({"tools": TOOLS, "tool_choice": choice}) == {}


@pytest.mark.parametrize("tools", [None, [], "x", {"a": 1}])
def test_where_no_tools_are_offered(tools: object) -> None:
    assert not offers_tools({"tools": tools})
    assert not offers_tools({"tools": TOOLS, "tool_choice": "none"})
    assert offers_tools({"tools": TOOLS, "tool_choice": "auto"})
    assert offers_tools({"tools": TOOLS})


def test_what_a_chat_takes_over_from_messages() -> None:
    kept = {"model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stream": True}
    kept |= {"chat_template_kwargs": {"enable_thinking": False}}
    assert chat_of_messages({**kept, "messages": []}) == {**kept, "messages": [], "max_tokens": 4096}


def test_what_else_the_engine_is_told() -> None:
    """For whom a request is, and that the events of an API need the usage and the stop word."""
    found = chat_of_messages({"messages": [], "metadata": {"user_id": "me"}})
    assert found == {"messages": [], "max_tokens": 4096, "__metadata_user_id": "me"}
    usage = {"stream_options": {"include_usage": True}}
    assert RESPONSES_FORM.needs({}) == usage
    assert MESSAGES_FORM.needs({}) == usage
    assert MESSAGES_FORM.needs({"stop": ["x"]}) == {**usage, "verbose": True}


def test_the_parts_of_a_system_prompt_are_joined_as_they_are() -> None:
    parts = [{"type": "text", "text": "Be"}, {"type": "image"}, {"type": "text", "text": " brief."}, {"type": "text"}]
    found = chat_of_messages({"messages": [], "system": parts})
    assert found is not None
    assert found["messages"] == [{"role": "system", "content": "Be brief."}]


def test_an_empty_turn_of_the_assistant_is_left_out_of_the_chat() -> None:
    """A prefill that says nothing; what a user left empty is the engine's to refuse."""
    asked = {"role": "user", "content": "Hi"}
    for role, left in (("assistant", []), ("user", [{"role": "user", "content": None}])):
        chat = chat_of_messages({"model": "m", "messages": [asked, {"role": role, "content": None}]})
        assert chat is not None
        assert chat["messages"] == [asked, *left]
