"""Replies that are nothing but thoughts, shown as the answer where that is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.scripted import ScriptedModels

pytestmark = pytest.mark.engine

THOUGHT = "Forty-two, I think.\n"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CHAT = "/v1/chat/completions"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 500},
}


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    script = ScriptedModels(tmp_path_factory.mktemp("thinkers"))
    silent = script(f"<think>\n{THOUGHT}</think>\n\n")
    own = {"file": str(silent), "ctx_size": 8192}
    models = {
        "silent": own,
        "shown": {**own, "reasoning_only": "answer"},
        "talks": {"file": str(script("It is 42.", think="Hm.")), "ctx_size": 8192},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def texts(answer: Any) -> list[str]:
    """The text that a person sees, of any API."""
    if "choices" in answer:
        return [answer["choices"][0]["message"]["content"] or ""]
    blocks = answer.get("content") or [part for item in answer["output"] for part in item.get("content") or ()]
    return [block["text"] for block in blocks if block["type"] in {"text", "output_text"}]


def ask(daemon: RunningDaemon, model: str, path: str = CHAT, **fields: Any) -> Any:
    response = daemon.http.post(path, json={"model": model, **ASKED[path], **fields})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("more", [{}, {"tool_calls": "off"}], ids=["", "off"])
def test_thoughts_become_the_answer_on_every_path(daemon: RunningDaemon, path: str, more: dict[str, Any]) -> None:
    assert THOUGHT not in texts(ask(daemon, "silent", path, **more))
    assert THOUGHT in texts(ask(daemon, "silent", path, reasoning_only="answer", **more))
    assert THOUGHT in texts(ask(daemon, "shown", path, **more))
    assert THOUGHT not in texts(ask(daemon, "shown", path, reasoning_only="keep", **more))


@pytest.mark.parametrize(
    "tools", [{}, {"tools": TOOLS}, {"tools": TOOLS, "tool_calls": "raw"}], ids=["", "tools", "raw"]
)
def test_a_stream_says_them_before_its_end(daemon: RunningDaemon, tools: dict[str, Any]) -> None:
    body = {"model": "silent", **ASKED[CHAT], **tools, "stream": True, "reasoning_only": "answer"}
    text = daemon.http.post(CHAT, json=body).text
    chunks = [json.loads(line[6:])["choices"][0] for line in text.splitlines() if line.startswith("data: {")]
    assert "".join(one["delta"].get("content") or "" for one in chunks).strip() == THOUGHT.strip()
    assert "".join(one["delta"].get("reasoning_content") or "" for one in chunks).strip() == THOUGHT.strip()
    assert [one["finish_reason"] for one in chunks[-2:]] == [None, "stop"]
    assert text.endswith("data: [DONE]\n\n")


def test_an_answer_with_text_is_not_touched(daemon: RunningDaemon) -> None:
    plain, asked = ask(daemon, "talks"), ask(daemon, "talks", reasoning_only="answer")
    assert plain["choices"] == asked["choices"]
    assert texts(asked) == ["It is 42."]


def test_another_value_is_refused(daemon: RunningDaemon) -> None:
    refused = daemon.http.post(CHAT, json={"model": "silent", **ASKED[CHAT], "reasoning_only": True})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "reasoning_only"
