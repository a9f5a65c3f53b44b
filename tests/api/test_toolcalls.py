"""Tool calls through the daemon: models that say calls as text, in every dialect, broken, and as look-alikes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.core.toolcalls.corpus import TOOLS, Case, dialects, malformations, negatives
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.talkers import write_talkers

pytestmark = pytest.mark.engine

ROW = re.compile(r"[DM]\d+|N-.*")
WEIRD = {"N-surrogates"}  # no text that a model could say


def can_be_asked(case: Case) -> bool:
    """Whether a request with the usual tools comes to this case."""
    asked = case.finish == "stop" and not case.reasoning_in and not case.options and case.choice is None
    said = bool(case.text.strip()) and case.id not in WEIRD and case.tools is TOOLS
    return asked and said and not case.reasoning and bool(ROW.fullmatch(case.id))


def word(case: Case) -> str:
    return re.sub(r"[^a-z0-9]+", "-", case.id.lower()).strip("-")


CASES = [case for case in (*dialects.CASES, *malformations.CASES, *negatives.CASES) if can_be_asked(case)]


class Talkers:
    """A daemon whose models say the cases."""

    def __init__(self, daemon: RunningDaemon, homes: dict[str, str]) -> None:
        self.daemon = daemon
        self.homes = homes
        self.client = openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0)

    def ask(self, model: str, word: str, **more: Any) -> Any:
        messages: Any = [{"role": "user", "content": word}]
        tools: Any = TOOLS
        return self.client.chat.completions.create(model=model, messages=messages, tools=tools, max_tokens=600, **more)

    def stream(self, model: str, word: str) -> Any:
        """What the client library makes of a stream."""
        asked: Any = {"model": model, "messages": [{"role": "user", "content": word}], "tools": TOOLS}
        with self.client.chat.completions.stream(**asked, max_tokens=600) as stream:
            return stream.get_final_completion()

    def counts(self, model: str) -> Any:
        return self.daemon.tool_calls()[model]


HERMES = {
    "well-formed": 'Hi. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "other-dialect": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
    "</tool_call>",
    "late-failure": "Some words first. <tool_call>\n<function=ping>\n</function>\n</tool_call>",
    "leaked": "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Paris'}}</tool_call>",
    "truncated": '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
    "only-prose": "The marker is `<tool_call>` and an answer may end in 5 <",
}
"""What the engine's own Hermes parser and grammar meet; the names say how it fares."""


@pytest.fixture(scope="module")
def talkers(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talkers]:
    folder = tmp_path_factory.mktemp("talkers")
    texts = {word(case): case.text for case in CASES}
    plain, homes = write_talkers(folder, texts)
    raw, raw_homes = write_talkers(folder / "raw", texts, "chatml")
    hermes, _ = write_talkers(folder / "hermes", HERMES, "chatml")
    files = {
        **{name: {"file": str(path)} for name, path in plain.items()},
        **{f"raw-{name}": {"file": str(path), "tool_calls": "raw"} for name, path in raw.items()},
        **{name: {"file": str(hermes["talker-0"])} for name in ("auto", "auto-stream", "auto-late", "others")},
    }
    models = {name: {**model, "parallel": 2, "ctx_size": 16384} for name, model in files.items()}
    assert len(hermes) == 1
    assert raw_homes.keys() == homes.keys()
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        found = Talkers(daemon, {**homes, **{f"raw {name}": f"raw-{model}" for name, model in raw_homes.items()}})
        yield found
        found.client.close()


def said(message: Any) -> tuple[tuple[tuple[str, Any], ...], str]:
    calls = message.tool_calls or []
    found = tuple((call.function.name, json.loads(call.function.arguments)) for call in calls)
    return found, message.content or ""


RAW = [*CASES[:40:2], *CASES[40::9]]
ROUTES = [*(("", case) for case in CASES), *(("raw ", case) for case in RAW)]


@pytest.mark.parametrize(
    ("raw", "case"), ROUTES, ids=lambda one: one.id if isinstance(one, Case) else one.strip() or "text"
)
def test_streamed_and_whole_it_is_the_same(talkers: Talkers, raw: str, case: Case) -> None:
    model = talkers.homes[raw + word(case)]
    whole = talkers.ask(model, word(case)).choices[0]
    assert said(whole.message) == (case.calls, case.content)
    assert whole.finish_reason == ("tool_calls" if case.calls else "stop")
    final = talkers.stream(model, word(case)).choices[0]
    assert said(final.message) == (case.calls, case.content)
    assert final.finish_reason == whole.finish_reason
    ids = [call.id for call in final.message.tool_calls or []]
    assert len(set(ids)) == len(ids)


PARIS = ("get_weather", {"city": "Paris"})


def test_what_the_engine_has_parsed_passes_untouched(talkers: Talkers) -> None:
    choice = talkers.stream("others", "well-formed").choices[0]
    assert said(choice.message) == ((PARIS,), "Hi. ")
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.tool_calls[0].id.startswith("call_"), "the engine's own id"
    assert talkers.counts("others")["native"] >= 1


@pytest.mark.parametrize("model", ["auto", "auto-stream"])
def test_where_the_engine_s_parser_fails_the_answer_is_asked_for_without_it(talkers: Talkers, model: str) -> None:
    ask = talkers.stream if model == "auto-stream" else talkers.ask
    choice = ask(model, "other-dialect").choices[0]
    assert said(choice.message) == ((PARIS,), "")
    assert choice.finish_reason == "tool_calls"
    assert talkers.counts(model)["recovered"] == {"qwen3-coder": 1}
    later = talkers.stream(model, "late-failure").choices[0]
    assert said(later.message) == ((("ping", {}),), "Some words first. "), "from now on without the parser"


def test_a_failure_behind_text_is_the_client_s_once(talkers: Talkers) -> None:
    with pytest.raises(openai.APIError, match="grammar"):
        talkers.stream("auto-late", "late-failure")
    assert talkers.counts("auto-late")["failed"] == 1
    choice = talkers.stream("auto-late", "late-failure").choices[0]
    assert said(choice.message) == ((("ping", {}),), "Some words first. ")


def test_what_the_engine_s_parser_leaves_in_the_text_is_found(talkers: Talkers) -> None:
    assert said(talkers.stream("others", "leaked").choices[0].message) == ((PARIS,), "")
    assert said(talkers.ask("others", "truncated").choices[0].message) == ((), HERMES["truncated"])


@pytest.mark.parametrize("mode", ["raw", "off", "native", "recover"])
def test_modes_by_request(talkers: Talkers, mode: str) -> None:
    choice = talkers.ask("others", "leaked", extra_body={"tool_calls": mode}).choices[0]
    found = mode in {"raw", "recover"}
    assert said(choice.message) == (((PARIS,), "") if found else ((), HERMES["leaked"]))
    assert choice.finish_reason == ("tool_calls" if found else "stop")
    native = talkers.ask("others", "well-formed", extra_body={"tool_calls": mode}).choices[0]
    assert said(native.message)[0] == (PARIS,)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "ping"}}], ids=str)
def test_a_template_without_tools_is_made_to_call_by_a_schema(talkers: Talkers, choice: Any) -> None:
    """The model of this template says what it says; the engine's grammar leaves it nothing but a call."""
    found = talkers.ask(talkers.homes[word(CASES[0])], word(CASES[0]), tool_choice=choice).choices[0]
    assert found.message.tool_calls
    names = {tool["function"]["name"] for tool in TOOLS} if choice == "required" else {"ping"}
    assert found.message.tool_calls[0].function.name in names


def test_a_mode_that_there_is_not(talkers: Talkers) -> None:
    with pytest.raises(openai.BadRequestError, match="tool_calls"):
        talkers.ask("others", "leaked", extra_body={"tool_calls": "perhaps"})


def test_prose_ends_as_the_model_ended_it(talkers: Talkers) -> None:
    asked = {"tool_calls": "raw"}
    assert said(talkers.ask("others", "only-prose", extra_body=asked).choices[0].message) == ((), HERMES["only-prose"])


def test_several_choices_have_calls_of_their_own(talkers: Talkers) -> None:
    choices = talkers.ask("others", "leaked", n=2).choices
    assert [said(choice.message) for choice in choices] == [((PARIS,), "")] * 2
    assert [choice.index for choice in choices] == [0, 1]
    assert choices[0].message.tool_calls[0].id != choices[1].message.tool_calls[0].id


def test_broken_arguments_of_earlier_turns_do_not_fail_the_request(talkers: Talkers) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Par'}
    history: Any = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "user", "content": "well-formed"},
    ]
    body: Any = {"model": "others", "messages": history, "tools": TOOLS}
    assert said(talkers.client.chat.completions.create(**body).choices[0].message)[0] == (PARIS,)
    assert talkers.client.chat.completions.create(model="others", messages=history).choices[0].finish_reason == "stop"
    with pytest.raises(openai.APIStatusError, match="parse"):
        talkers.client.chat.completions.create(**body, extra_body={"tool_calls": "off"})


def test_without_tools_the_bytes_are_the_engine_s(talkers: Talkers) -> None:
    asked = {"model": "others", "messages": [{"role": "user", "content": "leaked"}], "stream": True}
    text = talkers.daemon.http.post("/v1/chat/completions", json=asked).text
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in text.splitlines() if line.startswith("data: {")]
    assert "".join(delta.get("content") or "" for delta in deltas) == HERMES["leaked"]


def test_first_delta_of_a_call_has_everything_that_clients_need(talkers: Talkers) -> None:
    chunks = list(talkers.ask("others", "leaked", stream=True, stream_options={"include_usage": True}))
    parts = [part for chunk in chunks if chunk.choices for part in chunk.choices[0].delta.tool_calls or []]
    first = parts[0]
    assert (first.index, first.type, first.function.name) == (0, "function", "get_weather")
    assert re.fullmatch(r"call_[0-9A-Za-z]{24}", first.id)
    assert all(part.id is None and part.function.name is None for part in parts[1:])
    assert [chunk.choices[0].delta.role for chunk in chunks if chunk.choices].count("assistant") == 1
    assert chunks[-1].usage is not None
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
