"""Tools in the prompt, for templates that know none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.recovery import emulate
from supervisor.core.recovery.emulate import TemplateFacts
from supervisor.core.recovery.turns import Doubt, doubts_of
from tests.core.toolcalls.corpus import TOOLS

GEMMA = TemplateFacts(tools=False, system=False, text="{{ '<start_of_turn>' }}")
PHI = TemplateFacts(tools=False, system=True, text="<|user|>")
FUNCTION = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "a", "type": "function", "function": FUNCTION}]},
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
]
BODY: dict[str, Any] = {"model": "m", "messages": HISTORY, "tools": TOOLS, "tool_choice": "auto", "temperature": 0}


def emulated(body: dict[str, Any], facts: TemplateFacts) -> dict[str, Any]:
    return emulate.emulated(body, facts)


def test_hermes_form_for_most() -> None:
    body = emulated(BODY, PHI)
    assert body.keys() == {"model", "messages", "temperature"}
    system, user, assistant, result = body["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.\n\n")
    assert '"name": "write_file"' in system["content"]
    assert user == HISTORY[1]
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    assert assistant == {"role": "assistant", "content": f"I look.\n{call}"}
    assert result["role"] == "user"
    assert [part["text"] for part in result["content"]] == ["<tool_response>\nsunny\n</tool_response>", "And now?"]


def test_python_for_gemma_and_no_system_message() -> None:
    messages = emulated(BODY, GEMMA)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"], "they alternate"
    first = messages[0]["content"]
    assert first.startswith("Be brief.")
    assert first.endswith("Weather?")
    assert 'def get_weather(city: str, days: int = None) -> dict:\n    """get_weather it"""' in first
    assert messages[1]["content"] == "I look.\n```tool_code\nget_weather(city='Paris')\n```"
    assert messages[2]["content"][0]["text"] == "```tool_output\nsunny\n```"


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("auto", []),
        ("required", [tool["function"]["name"] for tool in TOOLS]),
        ({"type": "function", "function": {"name": "ping"}}, ["ping"]),
    ],
)
def test_a_call_that_must_be_is_enforced_by_a_schema(choice: object, names: list[str]) -> None:
    given = emulated({**BODY, "tool_choice": choice}, PHI).get("response_format")
    found = given["json_schema"]["schema"]["anyOf"] if given else []
    assert [one["properties"]["name"]["const"] for one in found] == names


def test_odd_requests_pass() -> None:
    for messages in (None, "x", [1], [{"role": "tool"}], [{"role": "assistant", "tool_calls": [{}]}]):
        assert json.dumps(emulated({"messages": messages, "tools": [1, {}]}, GEMMA))


@pytest.mark.parametrize("facts", [GEMMA, PHI])
@pytest.mark.parametrize(
    "wrong", [None, 1, "x", [], [1], [[]], {}, {"x": 1}, {"properties": 1}, {"properties": {"a": 1}}]
)
def test_what_is_of_the_wrong_shape_is_left_to_the_engine(facts: TemplateFacts, wrong: Any) -> None:
    calls = [{"role": "assistant", "tool_calls": one} for one in (wrong, [wrong], [{"function": wrong}])]
    calls += [{"role": "assistant", "tool_calls": [{"id": wrong, "function": {"name": wrong, "arguments": wrong}}]}]
    tools = [wrong, {"function": wrong}, {"function": {"name": wrong, "parameters": wrong, "description": wrong}}]
    results = [{"role": wrong, "content": wrong, "tool_call_id": wrong}, {"role": "tool", "tool_call_id": wrong}]
    for choice in (wrong, {"function": wrong}, "required"):
        assert json.dumps(emulated({"messages": [*calls, *results], "tools": tools, "tool_choice": choice}, facts))
    assert json.dumps(emulated({"messages": wrong, "tools": wrong}, facts))


def test_parameters_and_required_ones_take_linear_time() -> None:
    many = [f"p{number}" for number in range(20_000)]  # compared with each other, this would take minutes
    schema = {"properties": {key: {"type": "string"} for key in many}, "required": [*many[1:], *many[1:]]}
    said = emulated({"messages": [], "tools": [{"function": {"name": "f", "parameters": schema}}]}, GEMMA)
    assert "p1: str, " in said["messages"][0]["content"]
    assert "p0: str = None)" in said["messages"][0]["content"]


def test_neighbours_of_one_role_are_one_message_however_many_they_are() -> None:
    many = 50_000  # copied anew for each of them, this would take minutes
    said: list[dict[str, Any]] = [{"role": "user", "content": one} for one in ("a", None, "", "b")]
    said += [{"role": "user", "content": [{"type": "text", "text": "c"}]}]
    said += [{"role": "user", "content": "d", "name": "n"}] * many + [{"role": "assistant", "content": "e"}]
    _, user, assistant = emulated({"messages": said, "tools": TOOLS}, PHI)["messages"]
    assert [part["text"] for part in user["content"]] == ["a\n\nb", "c", *["d"] * many]
    assert (user["name"], assistant) == ("n", said[-1])
    texts = [{"role": "user", "content": "x" * 100}] * many
    assert emulated({"messages": texts, "tools": TOOLS}, PHI)["messages"][1]["content"].count("x\n\nx") == many - 1


def test_what_an_engine_does_not_say_is_taken_for_granted() -> None:
    assert TemplateFacts.from_props({}) == TemplateFacts(tools=True, system=True, text="")
    caps = {"supports_tools": False, "supports_system_role": False}
    assert TemplateFacts.from_props({"chat_template_caps": caps, "chat_template": "x"}) == TemplateFacts(
        False, False, "x"
    )


QWEN = "<tool_call>\n<function=x>\n<parameter=y>"


@pytest.mark.parametrize(
    ("template", "build", "swallows"),
    [
        (QWEN, "b11434-0123abc", True),
        (QWEN, "b20000", True),
        (QWEN, "b9000-0123abc", False),
        (QWEN, "unknown", False),
        (QWEN, None, False),
        ("{{ '<|tool_call>call:' }}", "b11434-0", True),
        ("[TOOL_CALLS]{{ name }}[ARGS]", "b11434-0", True),
        ("[TOOL_CALLS] [", "b11434-0", False),
        ("<tool_call>\n{", "b11434-0", False),
    ],
)
def test_templates_whose_parser_swallows_text(template: str, build: str | None, swallows: bool) -> None:
    facts = TemplateFacts.from_props({"chat_template": template, "build_info": build})
    assert facts.swallows is swallows


@pytest.mark.parametrize("facts", [PHI, GEMMA])
def test_earlier_calls_and_tools_keep_their_letters(facts: TemplateFacts) -> None:
    call = {"id": "a", "function": {"name": "get_weather", "arguments": '{"city": "Zürich 東京"}'}}
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "das Wetter für 東京"}}]
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    said = str(emulated({"messages": messages, "tools": tools}, facts)["messages"])
    assert "Zürich 東京" in said
    assert "das Wetter für 東京" in said


def test_a_tool_without_parameters_takes_any_object() -> None:
    tools = [{"type": "function", "function": {"name": "ping"}}]
    given = emulated({"messages": HISTORY, "tools": tools, "tool_choice": "required"}, PHI)["response_format"]
    [schema] = given["json_schema"]["schema"]["anyOf"]
    assert schema["properties"] == {"name": {"const": "ping"}, "arguments": {"type": "object"}}


@pytest.mark.parametrize("arguments", ['{"city": "Paris"}', {"city": "Paris"}])
def test_earlier_calls_show_their_arguments_and_broken_ones_none(arguments: object) -> None:
    def said(given: object) -> str:
        call = {"id": "a", "function": {"name": "get_weather", "arguments": given}}
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
        return str(emulated({"messages": messages, "tools": TOOLS}, PHI)["messages"][-1]["content"])

    assert json.loads(said(arguments).partition("<tool_call>")[2].partition("</tool_call>")[0]) == {
        "name": "get_weather",
        "arguments": {"city": "Paris"},
    }
    assert json.loads(said("{broken").partition("<tool_call>")[2].partition("</tool_call>")[0])["arguments"] == {}


@pytest.mark.parametrize(("facts", "begin"), [(PHI, '"arguments": '), (GEMMA, "get_weather(**")])
def test_arguments_that_take_long_to_read_stand_as_they_were_written(facts: TemplateFacts, begin: str) -> None:
    """All the same where many calls take long together; what is broken stays out."""
    long = json.dumps({"rows": [[]] * 10_000}, separators=(",", ":"))
    given = [json.dumps({"rows": [[]] * 5000}), long, '{"broken": ' + "[" * 100_000]
    calls = [{"id": str(n), "function": {"name": "get_weather", "arguments": one}} for n, one in enumerate(given)]
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    said = emulated({"messages": messages, "tools": TOOLS}, facts)["messages"][-1]["content"]
    assert begin + long in said
    assert "[], [], []" in said, "the first one is read, and written anew"
    assert "broken" not in said


def test_parts_of_a_text_are_lines() -> None:
    content = [{"type": "text", "text": "one"}, "odd", {"type": "image_url"}, {"type": "text", "text": "two"}]
    call = {"id": "a", "function": {"name": "ping", "arguments": "{}"}}
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": content, "tool_calls": [call]}]
    said = emulated({"messages": messages, "tools": TOOLS}, PHI)["messages"][-1]["content"]
    assert said.startswith("one\n\ntwo\n")


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "assistant", "content": "Welcome."},
    {"role": "user", "content": "One."},
    {"role": "user", "content": "Two."},
]


def roles(messages: list[dict[str, Any]]) -> list[tuple[str, object]]:
    return [(message["role"], message["content"]) for message in messages]


def test_a_conversation_without_tools_gets_turns_that_any_template_takes() -> None:
    told: Any = emulate.retold({"messages": TALK, "temperature": 1}, PHI)
    assert told["temperature"] == 1
    assert roles(told["messages"]) == [
        ("system", "Be brief."), ("user", ""), ("assistant", "Welcome."), ("user", "One.\n\nTwo."),
    ]  # fmt: skip
    without: Any = emulate.retold({"messages": TALK}, GEMMA)
    assert roles(without["messages"]) == [
        ("user", "Be brief."), ("assistant", "Welcome."), ("user", "One.\n\nTwo."),
    ]  # fmt: skip


def test_turns_of_tools_are_text_where_the_template_knows_none_though_no_tool_is_offered() -> None:
    told: Any = emulate.retold({"messages": HISTORY}, PHI)
    assert [message["role"] for message in told["messages"]] == ["system", "user", "assistant", "user"]
    assert "<tool_call>" in told["messages"][2]["content"]
    assert "sunny" in told["messages"][3]["content"][0]["text"]
    kept: Any = emulate.retold({"messages": [*HISTORY, HISTORY[-1]]}, TemplateFacts())
    assert kept["messages"][:4] == HISTORY[:4]
    assert len(kept["messages"]) == 5


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([{"role": "user"}, {"role": "assistant"}, {"role": "user"}], set()),
        ([{"role": "user"}, {"role": "assistant", "tool_calls": []}], set()),
        ([{"role": "developer"}, {"role": "user"}], {Doubt.SYSTEM}),
        ([{"role": "assistant"}], {Doubt.ORDER}),
        ([{"role": "user"}, {"role": "user"}], {Doubt.ORDER}),
        ([{"role": "user"}, {"role": "assistant"}, {"role": "tool"}, {"role": "tool"}], {Doubt.TOOLS}),
        ([{"role": "user"}, {"role": "assistant", "tool_calls": [{}]}], {Doubt.TOOLS}),
        ([None, 7, "x"], set()),
        (None, set()),
    ],
)
def test_what_is_in_doubt_with_a_conversation(messages: Any, found: set[Doubt]) -> None:
    assert doubts_of(messages) == found
