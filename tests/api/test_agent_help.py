"""Nudges and notes, asked for in a request, with a real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.core.toolcalls.corpus import TOOLS
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.talkers import write_talkers

pytestmark = pytest.mark.engine

ANNOUNCED = "Good question. I'll check the weather in Paris."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TEXTS = {"sky": ANNOUNCED, "announced": CALL, "dodge": "Let me look at that.", "again": "It is sunny."}
"""By a word of the last message. A nudge speaks of what was announced, a note asks not to call again."""


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    files, _ = write_talkers(tmp_path_factory.mktemp("helped"), TEXTS)
    assert len(files) == 1
    models = {"agent": {"file": str(files["talker-0"]), "ctx_size": 16384}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def ask(daemon: RunningDaemon, word: str, *, stream: bool = False, **more: Any) -> Any:
    """The choice that the official client makes of it."""
    asked: Any = {"model": "agent", "messages": [{"role": "user", "content": word}], "tools": TOOLS, **more}
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0) as client:
        if not stream:
            return client.chat.completions.create(**asked).choices[0]
        with client.chat.completions.stream(**asked) as events:
            return events.get_final_completion().choices[0]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_announced_call_is_made(daemon: RunningDaemon, stream: bool) -> None:
    choice = ask(daemon, "sky", stream=stream, extra_body={"agent_help": {"nudge": True}})
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == ANNOUNCED
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
    assert choice.message.role == "assistant"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_usage_of_a_nudged_answer_is_that_of_all_tries(daemon: RunningDaemon, stream: bool) -> None:
    def usage(**more: Any) -> Any:
        body = {"model": "agent", "messages": [{"role": "user", "content": "sky"}], "tools": TOOLS, **more}
        body |= {"stream": stream, "stream_options": {"include_usage": True}}
        text = daemon.http.post("/v1/chat/completions", json=body).text
        if not stream:
            return json.loads(text)["usage"]
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        (told,) = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
        return told

    once, both = usage(), usage(agent_help={"nudge": 1})
    assert both["prompt_tokens"] > 2 * once["prompt_tokens"]  # the second prompt has the first answer as well
    assert both["completion_tokens"] > once["completion_tokens"]
    assert both["total_tokens"] == both["prompt_tokens"] + both["completion_tokens"]


def test_nobody_is_nudged_who_did_not_ask_for_it(daemon: RunningDaemon) -> None:
    choice = ask(daemon, "sky", stream=True)
    assert (choice.message.content, choice.finish_reason) == (ANNOUNCED, "stop")
    assert not choice.message.tool_calls


def test_chunks_of_a_nudged_answer_are_one_answer(daemon: RunningDaemon) -> None:
    body = {"model": "agent", "messages": [{"role": "user", "content": "sky"}], "tools": TOOLS, "stream": True}
    text = daemon.http.post("/v1/chat/completions", json={**body, "agent_help": {"nudge": 1}}).text
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert len({chunk["id"] for chunk in chunks}) == 1  # `created` is the time of each chunk in llama-server's streams
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert [delta["role"] for delta in deltas if "role" in delta] == ["assistant"]
    assert [one["choices"][0]["finish_reason"] for one in chunks if one["choices"]].count("tool_calls") == 1
    assert text.count("[DONE]") == 1


def test_a_model_that_never_calls_is_nudged_three_times(engine_binary: Path, tmp_path: Path) -> None:
    files, _ = write_talkers(tmp_path, {"announced": "Let me look at that.", "sky": "I'll look."})
    models = {"agent": {"file": str(files["talker-0"]), "ctx_size": 16384}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        for stream in (True, False):
            choice = ask(daemon, "sky", stream=stream, extra_body={"agent_help": {"nudge": True}})
            assert choice.message.content == "\n\n".join(["I'll look.", *["Let me look at that."] * 3])
            assert choice.finish_reason == "stop"


def test_a_call_made_again_is_noticed(daemon: RunningDaemon) -> None:
    function = {"name": "ping", "arguments": "{}"}
    made: list[Any] = [{"role": "user", "content": "dodge"}]
    for number in ("1", "2"):
        call = {"id": number, "type": "function", "function": function}
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": number, "content": "pong"})
    noted = ask(daemon, "", messages=made, extra_body={"agent_help": {"repeats": True}})
    assert noted.message.content == TEXTS["again"]
    assert ask(daemon, "", messages=made).message.content != TEXTS["again"]


def test_help_that_there_is_not(daemon: RunningDaemon) -> None:
    with pytest.raises(openai.BadRequestError, match="agent_help"):
        ask(daemon, "sky", extra_body={"agent_help": {"nudge": 9}})
