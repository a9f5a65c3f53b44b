"""Real chat templates of llama.cpp's source; models answer in their form and in one their parser does not know.

The templates are read from the source tree and are no part of this repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Script
from tests.core.toolcalls.corpus import TOOLS, dialects
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.llama_source import llama_source

pytestmark = pytest.mark.engine

ROWS = {
    "Qwen-Qwen2.5-7B-Instruct": "D1",
    "Qwen3-Coder": "D2",
    "Qwen3.5-4B": "D2",
    "ByteDance-Seed-OSS": "D3",
    "GLM-4.6": "D4",
    "deepseek-ai-DeepSeek-V3.1": "D9",
    "moonshotai-Kimi-K2": "D11",
    "MiniMax-M1": "D13",
    "MiniMax-M2": "D14",
    "meta-llama-Llama-3.1-8B-Instruct": "D18",
    "LFM2-8B-A1B": "D23",
    "mistralai-Mistral-Nemo-Instruct-2407": "D25",
    "google-gemma-4-31B-it": "D29",
    "ibm-granite-granite-3.3-2B-Instruct": "D32",
    "NVIDIA-Nemotron-Nano-v2": "D34",
    "Apertus-8B-Instruct": "D40",
    "google-gemma-2-2b-it": "D28",
}
"""Template → the row of its dialect."""
CASES = {case.id: case for case in dialects.CASES}
FOREIGN = CASES["D16"]
OFFERED = [tool for tool in TOOLS if tool["function"]["name"] != "search"]  # one template knows no lists of types
SWALLOWED = {
    "Qwen3.5-4B": CASES["D1"],
}
"""Template → a text of which the engine's parser for it gives out nothing, without an error."""
PROSE = "It is sunny in Paris; I called no tool."


def templates() -> Path:
    """The folder of the templates; skips the test where the source is not there."""
    return llama_source() / "models" / "templates"


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """Each template with a model of its own dialect, one of a foreign dialect, and one that calls nothing."""
    folder, source = tmp_path_factory.mktemp("templated"), templates()
    models: dict[str, Any] = {}
    for name, row in ROWS.items():
        for kind, text in (("own", CASES[row].text), ("foreign", FOREIGN.text), ("prose", PROSE)):
            path = folder / f"{row if kind == 'own' else kind}.gguf"
            if not path.exists():
                write_scripted_gguf(path, Script("talker", text, n_ctx=32768))
            template = str(source / f"{name}.jinja")
            common = {"file": str(path), "chat_template_file": template, "ctx_size": 32768, "parallel": 1}
            models[f"{name}/{kind}"] = common
            models[f"{name}/{kind}/raw"] = {**common, "tool_calls": "raw"}
            models[f"{name}/{kind}/parsed"] = {**common, "tool_calls": "recover"}
    for name, case in SWALLOWED.items():
        path = folder / f"swallowed-{case.id}.gguf"
        write_scripted_gguf(path, Script("talker", case.text, n_ctx=32768))
        template = str(source / f"{name}.jinja")
        for mode in ("auto", "recover", "off"):
            common = {"file": str(path), "chat_template_file": template, "ctx_size": 32768, "parallel": 1}
            models[f"{name}/swallowed/{mode}"] = {**common, "tool_calls": mode}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def streamed(daemon: RunningDaemon, model: str) -> tuple[tuple[tuple[str, Any], ...], str, str]:
    """Calls, text and finish reason, as the official client accumulates them.

    The text is the reasoning where there is no content: some prompts end inside a think block.
    """
    asked: Any = {"messages": [{"role": "user", "content": "How is it?"}], "tools": OFFERED, "max_tokens": 300}
    with (
        openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0) as client,
        client.chat.completions.stream(model=model, **asked) as stream,
    ):
        choice = stream.get_final_completion().choices[0]
    calls = tuple((call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or [])
    daemon.http.post("/api/v1/models/unload", json={"model": model, "now": True})
    text = choice.message.content or getattr(choice.message, "reasoning_content", None) or ""
    return calls, text, choice.finish_reason


@pytest.mark.parametrize("route", ["parsed", "raw"])
@pytest.mark.parametrize("name", ROWS)
def test_its_own_dialect(daemon: RunningDaemon, name: str, route: str) -> None:
    calls, content, reason = streamed(daemon, f"{name}/own/{route}")
    assert (calls, content, reason) == (CASES[ROWS[name]].calls, "", "tool_calls")


@pytest.mark.parametrize("name", ROWS)
def test_a_foreign_dialect(daemon: RunningDaemon, name: str) -> None:
    calls, content, reason = streamed(daemon, f"{name}/foreign")
    assert (calls, content, reason) == (FOREIGN.calls, "", "tool_calls")


@pytest.mark.parametrize("name", ROWS)
def test_prose(daemon: RunningDaemon, name: str) -> None:
    assert streamed(daemon, f"{name}/prose") == ((), PROSE, "stop")


@pytest.mark.parametrize("name", SWALLOWED)
def test_what_the_engine_s_parser_swallows_comes_all_the_same(daemon: RunningDaemon, name: str) -> None:
    """With `auto` the template is known for it; with `recover` it is noticed, and the answer is asked for once more."""
    assert streamed(daemon, f"{name}/swallowed/off") == ((), "", "stop"), "the engine still swallows it"
    for mode in ("auto", "recover"):
        assert streamed(daemon, f"{name}/swallowed/{mode}") == (SWALLOWED[name].calls, "", "tool_calls")
    counts = daemon.tool_calls()
    assert counts[f"{name}/swallowed/recover"]["recovered"] == {"hermes": 1}
    whole = {"messages": [{"role": "user", "content": "How is it?"}], "tools": OFFERED, "max_tokens": 300}
    answer = daemon.http.post("/v1/chat/completions", json={**whole, "model": f"{name}/swallowed/recover"}).json()
    assert [call["function"]["name"] for call in answer["choices"][0]["message"]["tool_calls"]] == ["get_weather"]
