"""Each kind of block, source, tool and choice of the Messages API, as a chat has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.recovery.messages_request import chat_of_messages

Json = dict[str, Any]
PICTURE = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
LINKED = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def chat(**asked: Any) -> Json:
    found = chat_of_messages({"messages": [], **asked})
    assert found is not None
    return found


def said(*blocks: Json, role: str = "user") -> list[Json]:
    messages: list[Json] = chat(messages=[{"role": role, "content": list(blocks)}])["messages"]
    return messages


def result(**more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": "a", **more}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("sunny", "sunny"),
        ("", ""),
        (None, ""),
        (3, ""),
        ([], ""),
        ([text("sun"), text("ny")], "sunny"),
        ([{"type": "text"}], ""),
        ([text("sunny"), LINKED], [text("sunny"), PICTURE]),
        ([LINKED], [PICTURE]),
        ([{"type": "document"}, text("sunny")], "sunny"),
    ],
)
def test_the_result_of_a_call(content: object, told: object) -> None:
    assert said(result(content=content)) == [{"role": "tool", "tool_call_id": "a", "content": told}]


def test_a_result_without_anything() -> None:
    assert said({"type": "tool_result"}) == [{"role": "tool", "tool_call_id": "", "content": ""}]


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ({"type": "url", "url": "https://x"}, "https://x"),
        ({"type": "base64", "media_type": "image/png", "data": "AA"}, "data:image/png;base64,AA"),
        ({"type": "base64", "data": "AA"}, "data:image/jpeg;base64,AA"),
        ({"type": "base64"}, "data:image/jpeg;base64,"),
        ({"type": "url"}, None),
        ({"type": "url", "url": ""}, None),
        ({"type": "file", "url": "https://x"}, None),
        ({}, None),
    ],
)
def test_the_source_of_a_picture(source: Json, url: str | None) -> None:
    shown = [{"type": "image_url", "image_url": {"url": url}}] if url else []
    assert said(text("See"), {"type": "image", "source": source}) == [
        {"role": "user", "content": [text("See"), *shown]}
    ]


def call(name: str, arguments: str, number: str) -> Json:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_calls_thoughts_and_results_of_one_message() -> None:
    found = said(
        result(content="1"),
        {"type": "thinking", "thinking": "One, "},
        {"type": "tool_use", "id": "b", "name": "look", "input": {"ä": 1}},
        {"type": "thinking", "thinking": "two."},
        {"type": "thinking"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "input": None},
        result(content="2", tool_use_id="c"),
        role="assistant",
    )
    assert found == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call("look", json.dumps({"ä": 1}, ensure_ascii=False), "b"), call("", "{}", "")],
            "reasoning_content": "One, two.",
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    assert said({"type": "thinking", "thinking": "Hm."}, role="assistant") == [
        {"role": "assistant", "content": "", "reasoning_content": "Hm."}
    ]
    assert said() == []
    assert said({"type": "unheard of"}) == []


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (None, {}),
        ({}, {}),
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "look"}, {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
        ({"type": "unheard of"}, {}),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
        ({"disable_parallel_tool_use": True}, {"parallel_tool_calls": False}),
    ],
)
def test_choices_among_tools(choice: object, told: Json) -> None:
    assert chat(tool_choice=choice) == {"messages": [], "max_tokens": 4096, **told}


def test_tools_with_and_without_a_description() -> None:
    tools = chat(tools=[{"name": "a", "description": "d", "input_schema": {"type": "object"}}, {}])["tools"]
    assert [one["type"] for one in tools] == ["function", "function"]
    assert tools[0]["function"] == {"name": "a", "description": "d", "parameters": {"type": "object"}}
    assert (tools[1]["function"]["name"], tools[1]["function"]["description"]) == ("", "")
    assert "tools" not in chat(tools=[])


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 7}}, {"thinking_budget_tokens": 7}),
        ({"thinking": {"type": "enabled"}}, {"thinking_budget_tokens": 10000}),
        ({"thinking": {"type": "disabled", "budget_tokens": 7}}, {}),
        ({"thinking": None}, {}),
        ({"metadata": None}, {}),
        ({"metadata": {"user_id": ""}}, {}),
        ({"metadata": {"user_id": "me"}, "thinking": {"type": "enabled"}},
         {"thinking_budget_tokens": 10000, "__metadata_user_id": "me"}),
        ({"stop_sequences": []}, {"stop": []}),
        ({"max_tokens": 1}, {"max_tokens": 1}),
    ],
)  # fmt: skip
def test_thinking_and_whom_it_is_for(asked: Json, told: Json) -> None:
    assert chat(**asked) == {"messages": [], "max_tokens": 4096} | told


@pytest.mark.parametrize(
    ("system", "messages"),
    [
        (None, []),
        (3, []),
        ("Hi", [{"role": "system", "content": "Hi"}]),
        ([], [{"role": "system", "content": ""}]),
        ([{"type": "image", "text": "x"}, text("Hi")], [{"role": "system", "content": "Hi"}]),
    ],
)
def test_the_system_prompt(system: object, messages: list[Json]) -> None:
    assert chat(system=system)["messages"] == messages
