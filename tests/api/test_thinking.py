"""Switches of reasoning with a real engine: what reaches the template, shown by the prompt that it makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import REASONED
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

pytestmark = pytest.mark.engine

TEMPLATE = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor -%}"
    "on={{ thinking }} keep={{ preserve_thinking }} clear={{ clear_thinking }} effort={{ reasoning_effort }}"
    "<|im_start|>assistant\n"
)
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]
SAID = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    own = {"file": str(talker), "ctx_size": 8192}
    models = {"shown": {**own, "chat_template": TEMPLATE}, "thinker": own}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def prompt(daemon: RunningDaemon, path: str = "/v1/chat/completions", **fields: Any) -> str:
    """The prompt that the engine made of a request."""
    answer = daemon.http.post(path, json={"model": "shown", **SAID, "verbose": True, **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["__verbose"]["prompt"])


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"enable_thinking": False}, "on=False"),
        ({"thinking": {"type": "enabled"}}, "on=True"),
        ({"thinking": False}, "on=False"),
        ({"reasoning_effort": "none"}, "on=False"),
        ({"reasoning_effort": "high"}, "effort=high"),
        ({"preserve_thinking": True}, "keep=True clear=False"),
        ({"preserve_thinking": False}, "keep=False clear=True"),
        ({"enable_thinking": False, "chat_template_kwargs": {"thinking": True}}, "on=True"),
    ],
    ids=str,
)
def test_a_switch_reaches_the_template(daemon: RunningDaemon, fields: dict[str, Any], shown: str) -> None:
    assert shown in prompt(daemon, **fields)


def test_tools_that_may_not_be_called_are_not_in_the_prompt(daemon: RunningDaemon) -> None:
    named = '"name": "f"'
    assert named in prompt(daemon, tools=TOOLS)
    for choice in ("none", {"type": "none"}):
        assert named not in prompt(daemon, tools=TOOLS, tool_choice=choice)


def test_what_tells_of_a_prompt_tells_of_that_one(daemon: RunningDaemon) -> None:
    shown = daemon.http.post("/apply-template", json={"model": "shown", **SAID, "thinking": False}).json()["prompt"]
    assert "on=False" in shown
    asked = {"model": "shown", "messages": SAID["messages"]}
    for path in ("/v1/chat/completions/input_tokens", "/v1/messages/count_tokens"):
        plain = daemon.http.post(path, json=asked).json()["input_tokens"]
        assert daemon.http.post(path, json={**asked, "thinking": {"type": "disabled"}}).json()["input_tokens"] > plain
        assert daemon.http.post(path, json={**asked, "temperature": -1}).status_code == 400


def test_anthropics_disabled_thinking_reaches_the_template(daemon: RunningDaemon) -> None:
    """By the tokens of the prompt, which the answer tells: `False` and nothing differ."""

    def tokens(**fields: Any) -> int:
        asked = {"model": "shown", **SAID, **fields}
        usage = daemon.http.post("/v1/messages", json=asked).json()["usage"]
        return int(usage["input_tokens"] + usage["cache_read_input_tokens"])

    plain = tokens()
    assert tokens(thinking={"type": "disabled"}) > plain
    assert tokens(tools=[{"name": "f", "input_schema": {"type": "object"}}], tool_choice={"type": "none"}) == plain


@pytest.mark.parametrize("fields", [{"reasoning_format": "none"}, {"separate_reasoning": False}], ids=str)
def test_reasoning_can_be_folded_into_the_content(daemon: RunningDaemon, fields: dict[str, Any]) -> None:
    asked = {"model": "thinker", "messages": [{"role": "user", "content": "think"}]}
    apart = daemon.http.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]
    assert (apart["content"], apart["reasoning_content"]) == (REASONED, "Let me ponder.\n")
    folded = daemon.http.post("/v1/chat/completions", json={**asked, **fields}).json()["choices"][0]["message"]
    assert folded["content"].startswith("<think>")
    assert folded["content"].endswith(REASONED)
    assert "reasoning_content" not in folded
