"""Help that a request asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.recovery.help import AgentHelp, announces, asked_help, nudged, with_warnings
from supervisor.errors import InvalidRequest


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, AgentHelp()),
        ({}, AgentHelp()),
        ({"nudge": True, "repeats": True}, AgentHelp(3, True)),
        ({"nudge": 2}, AgentHelp(2)),
        ({"nudge": False}, AgentHelp()),
    ],
)
def test_what_is_asked_for(asked: Any, found: AgentHelp) -> None:
    assert asked_help({"agent_help": asked}) == found


@pytest.mark.parametrize("asked", ["yes", {"nudge": 4}, {"nudge": -1}, {"nudge": "x"}, {"repeats": 1}, {"other": True}])
def test_what_cannot_be_asked_for(asked: Any) -> None:
    with pytest.raises(InvalidRequest, match="agent_help"):
        asked_help({"agent_help": asked})


@pytest.mark.parametrize(
    "text",
    [
        "I'll search for the file.",
        "First, I will carefully read the configuration:",
        "Good. Now let me check the weather in Paris...",
        "I’m going to run the tests now.",
        "The file is missing. Let's look at the folder.",
    ],
)
def test_announcements(text: str) -> None:
    assert announces(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is sunny in Paris.",
        "Shall I search for it? I'll search if you want. Do you?",
        "I will be happy to help.",
        "You will run the tests yourself.",
        "I'll read it. " + "And so it went on. " * 40,
        "Let me know whether that works.",
    ],
)
def test_no_announcements(text: str) -> None:
    assert not announces(text)


def test_a_nudge_says_what_was_said_and_asks_for_the_call() -> None:
    before: list[Any] = [{"role": "user", "content": "Hi"}]
    after: list[Any] = nudged(before, "I'll look.")
    assert [one["role"] for one in after] == ["user", "assistant", "user"]
    assert after[1]["content"] == "I'll look."
    assert len(before) == 1


def turn(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    """Calls, each by name and arguments, with their results."""
    out: list[dict[str, Any]] = []
    for number, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        out.append({"role": "assistant", "tool_calls": [{"id": f"{number}", "type": "function", "function": function}]})
        out.append({"role": "tool", "tool_call_id": f"{number}", "content": "nothing"})
    return out


USER: dict[str, Any] = {"role": "user", "content": "Hi"}


def test_a_call_made_again_gets_a_note_in_its_result() -> None:
    messages = [USER, *turn(("f", {"a": 1, "b": 2}), ("f", {"b": 2, "a": 1}), ("f", {"a": 1}))]
    warned: Any = with_warnings(messages)
    assert warned is not None
    results = [one["content"] for one in warned if one["role"] == "tool"]
    assert results[0] == results[2] == "nothing"
    assert results[1].startswith("nothing\n\n[This is call number 2 ")
    assert messages[4]["content"] == "nothing", "the request itself stays"


def test_parts_stay_parts() -> None:
    messages = [USER, *turn(("f", {}), ("f", {}))]
    messages[-1]["content"] = [{"type": "text", "text": "nothing"}]
    warned: Any = with_warnings(messages)
    assert warned is not None
    assert [part["type"] for part in warned[-1]["content"]] == ["text", "text"]


def test_other_calls_and_those_of_earlier_turns_do_not_count() -> None:
    assert with_warnings([USER, *turn(("f", {})), USER, *turn(("f", {}))]) is None
    assert with_warnings([USER, *turn(("f", {}), ("g", {}), ("f", {"a": 1}))]) is None
    assert with_warnings("no list") is None


def test_what_would_take_long_to_compare_is_compared_as_text() -> None:
    """Together for one request: each of many calls may be small."""
    many: dict[str, Any] = {"a": [[]] * 1000}
    same = [("f", many)] * 40
    warned: Any = with_warnings([USER, *turn(*same)])
    assert warned is not None
    assert "call number 2 " in warned[4]["content"]
    messages = turn(*same)
    for number, message in enumerate(messages[::2]):
        message["tool_calls"][0]["function"]["arguments"] += " " * number
    warned = with_warnings([USER, *messages])
    assert warned is not None
    results = [one["content"] for one in warned if one["role"] == "tool"]
    assert "call number 2 " in results[1], "those that are read are equal"
    assert results[-1] == "nothing", "the last one differs as text"


@pytest.mark.parametrize("deep", ["[" * 600 + "]" * 600, "[" * 100_000])
def test_deep_arguments_are_compared_as_text(deep: str) -> None:
    messages = turn(("f", 0), ("f", 0), ("f", 0))
    for message, text in zip(messages[::2], (deep, deep, deep + " "), strict=True):
        message["tool_calls"][0]["function"]["arguments"] = text
    warned: Any = with_warnings([USER, *messages])
    assert warned is not None
    assert [one["content"] == "nothing" for one in warned if one["role"] == "tool"] == [True, False, True]
