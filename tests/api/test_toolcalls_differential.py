"""Against the engine: its templates write calls down, and its own parsers read them; so must we, with the same result.

What a template makes of a call in a conversation is what its model is trained to say. That text is read by our
recoverer, and said by a model through the real engine, whose parser reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.toolcalls.whole import Request, read_answer
from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Script
from tests.api.test_toolcalls_templates import OFFERED, templates
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

pytestmark = pytest.mark.engine

NAMES = (
    *("Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B", "ByteDance-Seed-OSS", "GLM-4.6"),
    *("GLM-4.7-Flash", "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2", "moonshotai-Kimi-K2", "MiniMax-M1"),
    *("MiniMax-M2", "meta-llama-Llama-3.1-8B-Instruct", "LFM2.5-8B-A1B", "mistralai-Mistral-Nemo-Instruct-2407"),
    *("mistralai-Ministral-3-14B-Reasoning-2512", "google-gemma-4-31B-it", "ibm-granite-granite-4.0"),
    *("NVIDIA-Nemotron-Nano-v2", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Apertus-8B-Instruct", "openai-gpt-oss-120b"),
)
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("get_weather", {"city": "Paris", "days": 3}),
    "text": ("write_file", {"path": "a b/ç.txt", "content": 'x = "1" < 2 and {"a": [1]}\n\tprint(x)'}),
    "typed": ("write_file", {"path": "00501", "content": "true"}),
}
ENDS = (
    *("<|im_end|>", "<|eot_id|>", "</s>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<turn|>", "<|tool_response>"),
    *("<|call|>", "<seed:eos>", "[e~[", "<end_of_sentence>", "<SPECIAL_12>", "<|assistant_end|>", "<|observation|>"),
)

THOUGHT = re.compile(r"\A.*?</[a-z:]*think>\s*", re.DOTALL)

HARMONY = re.compile(r"\A to=")
"""The prompt ends with the beginning of the message's header."""


@contextmanager
def models(engine: Path, found: dict[str, Any]) -> Iterator[RunningDaemon]:
    with scratch_home() as home, running_daemon(home, engine, {"models": found}) as running:
        yield running


def settings(path: Path, template: str) -> dict[str, Any]:
    file = str(templates() / f"{template}.jinja")
    common = {"file": str(path), "chat_template_file": file, "ctx_size": 32768, "parallel": 1}
    return {**common, "tool_calls": "native", "extra_args": ["--no-prefill-assistant"]}


@pytest.fixture(scope="module")
def written(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """(template, call) → how the template writes that call down."""
    path = tmp_path_factory.mktemp("writing") / "any.gguf"
    write_scripted_gguf(path, Script("talker", "Hm.", n_ctx=32768))
    out: dict[tuple[str, str], str] = {}
    with models(engine_binary, {name: settings(path, name) for name in NAMES}) as daemon:
        for name in NAMES:
            for kind, (function, arguments) in CALLS.items():
                called = {"name": function, "arguments": json.dumps(arguments)}
                call = {"id": "abcdef123", "type": "function", "function": called}
                asked = [{"role": "user", "content": "Go on."}]
                before = rendered(daemon, name, asked)
                after = rendered(daemon, name, [*asked, {"role": "assistant", "content": "", "tool_calls": [call]}])
                out[name, kind] = said(before, after)
            daemon.http.post("/api/v1/models/unload", json={"model": name, "now": True})
    return out


def rendered(daemon: RunningDaemon, model: str, messages: list[dict[str, Any]]) -> str:
    opens = messages[-1]["role"] == "user"
    body = {"messages": messages, "tools": OFFERED, "add_generation_prompt": opens}
    answer = daemon.http.post(f"/upstream/{model}/apply-template", json=body)
    assert answer.status_code == 200, answer.text
    prompt: str = answer.json()["prompt"]
    return prompt


def said(before: str, after: str) -> str:
    """What the assistant says in `after`, without the end of its turn."""
    count = next((at for at, (one, two) in enumerate(zip(before, after, strict=False)) if one != two), len(before))
    count -= before[:count].endswith("<")
    text = after[count:].rstrip()
    for _ in range(2):
        for end in ENDS:
            text = text.removesuffix(end).rstrip()
    thinks = before.rstrip().endswith("<think>") and "</think>" not in text
    return f"</think>\n\n{text}" if thinks else text


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_template_writes_is_read(written: dict[tuple[str, str], str], name: str, kind: str) -> None:
    text = HARMONY.sub(r"<|start|>assistant\g<0>", THOUGHT.sub("", written[name, kind]))
    answer = read_answer(Request(OFFERED), [text], (), "stop")
    found = [(call.name, json.loads(call.arguments)) for call in answer.calls]
    assert (found, answer.content.strip()) == ([CALLS[kind]], ""), text


@pytest.fixture(scope="module")
def parsing(
    engine_binary: Path, written: dict[tuple[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningDaemon]:
    """Models that say what the templates write, with the engine's own parser."""
    folder = tmp_path_factory.mktemp("parsing")
    found: dict[str, Any] = {}
    for number, ((name, kind), text) in enumerate(written.items()):
        path = folder / f"{number}.gguf"
        write_scripted_gguf(path, Script("talker", text, n_ctx=32768))
        found[f"{name}/{kind}"] = settings(path, name)
    with models(engine_binary, found) as daemon:
        yield daemon


@pytest.mark.parametrize("kind", ["text", *(pytest.param(one, marks=pytest.mark.full) for one in ("plain", "typed"))])
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_s_parser_reads_the_same(parsing: RunningDaemon, name: str, kind: str) -> None:
    asked = {"messages": [{"role": "user", "content": "Go on."}], "tools": OFFERED, "max_tokens": 400}
    model = f"{name}/{kind}"
    answer = parsing.http.post("/v1/chat/completions", json={**asked, "model": model})
    parsing.http.post("/api/v1/models/unload", json={"model": model, "now": True})
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [CALLS[kind]], message
