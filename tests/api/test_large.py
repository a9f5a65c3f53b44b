"""Large requests reach a real engine whole: it counts and refuses what the client sent, not what the relay read."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.daemon import RunningDaemon
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

LONG = 'Zeile "eins"\n' * 40_000
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def direct(daemon: RunningDaemon, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the engine itself answers."""
    transport = httpx.HTTPTransport(uds=daemon.engine_socket("talker"))
    with httpx.Client(transport=transport, base_url="http://engine", timeout=PATIENCE) as client:
        found: dict[str, Any] = client.post(path, json=body).json()
        return found


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"tools": TOOLS}], ids=["single", "stream", "tools"])
def test_a_text_beyond_the_context_is_refused_with_all_its_tokens_counted(
    daemon: RunningDaemon, more: dict[str, Any]
) -> None:
    daemon.load("talker")
    messages = [{"role": "user", "content": LONG}]
    own = direct(daemon, "/v1/chat/completions", {"messages": messages, **more})["error"]
    answer = daemon.http.post("/v1/chat/completions", json={"model": "talker", "messages": messages, **more})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["n_prompt_tokens"] == own["n_prompt_tokens"] > 16384


def test_a_large_field_beside_a_short_chat_changes_nothing(daemon: RunningDaemon) -> None:
    short = daemon.chat("talker", "Hi")
    large = daemon.chat("talker", "Hi", metadata={"list": ["text"] * 100_000})
    assert (large.status_code, large.json()["choices"]) == (200, short.json()["choices"])


def test_an_engine_s_own_path_gets_every_byte(daemon: RunningDaemon) -> None:
    body = {"content": LONG}
    own = direct(daemon, "/tokenize", body)["tokens"]
    answer = daemon.http.post("/upstream/talker/tokenize", content=json.dumps(body))
    assert answer.json()["tokens"] == own
