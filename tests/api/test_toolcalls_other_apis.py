"""Calls in the text through `/v1/responses` and `/v1/messages`, as the official clients accumulate them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.core.toolcalls.corpus import TOOLS, dialects
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.talkers import write_talkers

pytestmark = pytest.mark.engine

ROWS = ("D1", "D2", "D5", "D9", "D11", "D16", "D18", "D23", "D25", "D28", "D29", "D36")
CASES = [case for case in dialects.CASES if case.id in ROWS]
CALL = "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Paris'}}</tool_call>"
TEXTS = {
    **{case.id.lower(): case.text for case in CASES},
    "around": f"Let me see. {CALL} That is all.",
    "twice": f"{CALL}\n{CALL}",
    "prose": "I looked out of the window, and the sun shines.",
    "thought": f"<think>Paris it is.</think>So. {CALL}",
}
HERMES = {
    "foreign": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
    "own": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "late": "Some words first. <tool_call>\n<function=ping>\n</function>\n</tool_call>",
}
PARIS = ("get_weather", {"city": "Paris"})
FUNCTIONS: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
USABLE: Any = [
    {"name": one["name"], "description": one.get("description", ""), "input_schema": one["parameters"]}
    for one in (tool["function"] for tool in TOOLS)
]


@dataclass(frozen=True)
class Said:
    """What a client has got: kinds and texts of all parts in order, the calls, and why it ended."""

    parts: tuple[tuple[str, Any], ...]
    reason: str

    @property
    def calls(self) -> tuple[Any, ...]:
        return tuple(part for kind, part in self.parts if kind == "call")

    @property
    def text(self) -> str:
        return "".join(part for kind, part in self.parts if kind == "text")


class Asker:
    """A daemon, and both clients."""

    def __init__(self, daemon: RunningDaemon, homes: dict[str, str]) -> None:
        self.daemon = daemon
        self.homes = homes
        self.openai = openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=daemon.url, api_key="unused", max_retries=0)

    def responses(self, word: str, *, stream: bool, model: str = "", **more: Any) -> Said:
        asked: Any = {"model": model or self.homes[word], "input": word, "tools": FUNCTIONS, **more}
        if not stream:
            return said_by_response(self.openai.responses.create(**asked))
        with self.openai.responses.stream(**asked) as events:
            list(events)
            return said_by_response(events.get_final_response())

    def messages(self, word: str, *, stream: bool, model: str = "", **more: Any) -> Said:
        messages = [{"role": "user", "content": word}]
        asked: Any = {"model": model or self.homes[word], "messages": messages, "tools": USABLE, "max_tokens": 600}
        asked |= more
        if not stream:
            return said_by_message(self.anthropic.messages.create(**asked))
        with self.anthropic.messages.stream(**asked) as events:
            return said_by_message(events.get_final_message())

    def ask(self, api: str, word: str, **more: Any) -> Said:
        return self.responses(word, **more) if api == "responses" else self.messages(word, **more)


def said_by_response(response: Any) -> Said:
    parts: list[tuple[str, Any]] = []
    for item in response.output:
        if item.type == "function_call":
            assert item.call_id
            parts.append(("call", (item.name, json.loads(item.arguments))))
        elif item.type == "message":
            parts.append(("text", item.content[0].text))
        else:
            parts.append(("thought", item.content[0].text))
    return Said(tuple(parts), response.status)


def said_by_message(message: Any) -> Said:
    parts: list[tuple[str, Any]] = []
    for block in message.content:
        if block.type == "tool_use":
            assert block.id
            parts.append(("call", (block.name, block.input)))
        elif block.type == "text":
            parts.append(("text", block.text))
        else:
            parts.append(("thought", block.thinking))
    return Said(tuple(parts), message.stop_reason)


@pytest.fixture(scope="module")
def asker(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    folder = tmp_path_factory.mktemp("askers")
    files, homes = write_talkers(folder, TEXTS)
    hermes, _ = write_talkers(folder / "hermes", HERMES, "chatml")
    models: dict[str, Any] = {name: {"file": str(path), "ctx_size": 16384} for name, path in files.items()}
    models |= {
        name: {"file": str(hermes["talker-0"]), "ctx_size": 16384}
        for name in ("r0", "r1", "m0", "m1", "late-r", "late-m", "own")
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        found = Asker(daemon, homes)
        yield found
        found.openai.close()
        found.anthropic.close()


def reason_of(api: str, *, calls: bool) -> str:
    if api == "responses":
        return "completed"
    return "tool_use" if calls else "end_turn"


both = pytest.mark.parametrize("api", ["responses", "messages"])
either = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@both
@either
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_calls_of_many_dialects(asker: Asker, api: str, stream: bool, case: Any) -> None:
    said = asker.ask(api, case.id.lower(), stream=stream)
    assert (said.calls, said.text) == (case.calls, case.content)
    assert said.reason == reason_of(api, calls=bool(case.calls))


@both
def test_text_around_a_call_keeps_its_place(asker: Asker, api: str) -> None:
    said = asker.ask(api, "around", stream=True)
    assert said.parts == (("text", "Let me see. "), ("call", PARIS), ("text", " That is all."))


@both
@either
def test_two_calls_and_none(asker: Asker, api: str, stream: bool) -> None:
    assert asker.ask(api, "twice", stream=stream).calls == (PARIS, PARIS)
    prose = asker.ask(api, "prose", stream=stream)
    assert (prose.parts, prose.reason) == ((("text", TEXTS["prose"]),), reason_of(api, calls=False))


@both
@either
def test_reasoning_comes_first(asker: Asker, api: str, stream: bool) -> None:
    said = asker.ask(api, "thought", stream=stream, extra_body={"tool_calls": "raw"})
    assert said.parts == (("thought", "Paris it is."), ("text", "So. "), ("call", PARIS))


@both
@either
def test_a_failing_parser_is_left_out(asker: Asker, api: str, stream: bool) -> None:
    said = asker.ask(api, "foreign", stream=stream, model=f"{api[0]}{int(stream)}")
    assert said.parts == (("call", PARIS),)


@both
@either
def test_what_the_engine_has_parsed(asker: Asker, api: str, stream: bool) -> None:
    assert asker.ask(api, "own", stream=stream, model="own").parts == (("call", PARIS),)


@both
def test_a_failure_behind_text_ends_the_stream_in_the_api_s_form(asker: Asker, api: str) -> None:
    with pytest.raises((openai.APIError, anthropic.APIError, RuntimeError)):
        asker.ask(api, "late", stream=True, model=f"late-{api[0]}")
    path, body = (
        ("/v1/responses", {"input": "late", "tools": FUNCTIONS})
        if api == "responses"
        else ("/v1/messages", {"messages": [{"role": "user", "content": "late"}], "tools": USABLE, "max_tokens": 99})
    )
    answer: httpx.Response = asker.daemon.http.post(
        path, json={**body, "model": f"late-{api[0]}", "stream": True, "tool_calls": "recover"}
    )
    last = answer.text.strip().split("\n\n")[-1]
    assert last.startswith("event: error\ndata: ")


@both
def test_off_and_an_unknown_mode(asker: Asker, api: str) -> None:
    said = asker.ask(api, "around", stream=False, extra_body={"tool_calls": "off"})
    assert said.parts == (("text", TEXTS["around"]),)
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match="tool_calls"):
        asker.ask(api, "around", stream=False, extra_body={"tool_calls": "perhaps"})


def test_an_answer_that_is_cut(asker: Asker) -> None:
    message = asker.messages("prose", stream=True, max_tokens=2)
    assert message.reason == "max_tokens"
    asked: Any = {"model": asker.homes["prose"], "input": "prose", "tools": FUNCTIONS, "max_output_tokens": 2}
    last = list(asker.openai.responses.create(**asked, stream=True))[-1]
    assert (last.type, last.response.status) == ("response.completed", "completed"), "as the engine says it"
    assert last.response.completed_at >= last.response.created_at
    assert TEXTS["prose"].startswith(last.response.output_text)
    assert last.response.output_text == message.text != TEXTS["prose"]


@pytest.mark.parametrize(
    ("path", "body", "ends"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "endless"}], "tools": TOOLS},
            "data: [DONE]",
        ),
        ("/v1/responses", {"input": "endless", "tools": FUNCTIONS}, "event: error"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "endless"}], "tools": USABLE}, "event: error"),
    ],
    ids=["chat", "responses", "messages"],
)
def test_a_cancelled_stream_ends_in_its_form(
    asker: Asker, talker: Path, path: str, body: dict[str, Any], ends: str
) -> None:
    asker.daemon.http.post("/api/v1/models/load", json={"target": str(talker), "id": "endless"})
    asked = {**body, "model": "endless", "stream": True, "max_tokens": 100_000, "max_output_tokens": 100_000}
    with asker.daemon.http.stream("POST", path, json=asked) as answer:
        arriving = answer.iter_text()
        text = next(arriving)
        (one,) = asker.daemon.http.get("/api/v1/requests").json()["requests"]
        assert asker.daemon.http.delete(f"/api/v1/requests/{one['id']}").status_code == 200
        events = (text + "".join(arriving)).strip().split("\n\n")
    assert events[-1].startswith(ends)
    error = events[-2] if ends == "data: [DONE]" else events[-1]
    assert "request_cancelled" in error


def test_a_named_tool_is_the_one_that_is_called(asker: Asker) -> None:
    by_messages = asker.messages("prose", stream=True, tool_choice={"type": "tool", "name": "ping"})
    by_responses = asker.responses("prose", stream=True, tool_choice={"type": "function", "name": "ping"})
    assert {call[0] for call in (*by_messages.calls, *by_responses.calls)} == {"ping"}
    assert by_messages.calls
    assert by_responses.calls


def test_a_conversation_with_calls_and_results(asker: Asker) -> None:
    history: Any = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ping", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "pong"}]},
        {"role": "user", "content": "around"},
    ]
    assert asker.messages("around", stream=True, messages=history).calls == (PARIS,)
    items: Any = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "a", "name": "ping", "arguments": '{"broken": '},
        {"type": "function_call_output", "call_id": "a", "output": "pong"},
        {"role": "user", "content": "around"},
    ]
    assert asker.responses("around", stream=True, input=items).calls == (PARIS,)
    plain = asker.openai.responses.create(model="own", input=items)
    assert plain.status == "completed", "broken arguments do not fail a request without tools either"


def test_usage_and_numbered_events(asker: Asker) -> None:
    asked: Any = {"model": asker.homes["around"], "input": "around", "tools": FUNCTIONS, "stream": True}
    events: list[Any] = list(asker.openai.responses.create(**asked))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.usage.total_tokens > events[-1].response.usage.output_tokens > 0
    done = [event.item.type for event in events if event.type == "response.output_item.done"]
    assert done == ["message", "function_call", "message"]
    with asker.anthropic.messages.stream(
        model=asker.homes["around"], max_tokens=99, tools=USABLE, messages=[{"role": "user", "content": "around"}]
    ) as stream:
        usage = stream.get_final_message().usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0
    assert usage.output_tokens > 0
