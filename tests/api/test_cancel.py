"""A client that goes away frees its slot: streaming or not, in prefill and in decoding, alone or beside another stream.

No answer here ends by itself, so that a slot that is free was freed. How quickly, `benchmarks/relay.py` measures.
The engine itself says whether a slot is at work (`GET /slots` on its socket).
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = pytest.mark.engine

# A byte is a token of the scripted model, so this prompt takes seconds to read; its answer never ends.
LONG_PROMPT = "x " * 30_000 + "endless"


@pytest.fixture(scope="module")
def slow(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon whose model reads its prompt in small batches."""
    talker_settings = {
        "file": str(talker),
        "parallel": 4,
        "ctx_size": 131072,
        "batch_size": 64,
        "ubatch_size": 64,
        "kv_unified": True,
        "extra_args": ["--no-cache-prompt"],
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": {"talker": talker_settings}}) as daemon:
        daemon.load("talker")
        yield daemon


def request(daemon: RunningDaemon, prompt: str, *, stream: bool) -> contextlib.AbstractContextManager[socket.socket]:
    """A chat."""
    return posted(daemon, "/v1/chat/completions", {"messages": said(prompt)}, stream=stream)


def said(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


@contextlib.contextmanager
def posted(daemon: RunningDaemon, path: str, body: dict[str, Any], *, stream: bool) -> Iterator[socket.socket]:
    """Send a request over a bare connection, which is closed at the end of the block."""
    payload = json.dumps({"model": "talker", "stream": stream, **body}).encode()
    host, port = daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        start = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        head = f"{start}Content-Length: {len(payload)}\r\n\r\n"
        connection.sendall(head.encode() + payload)
        yield connection


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "beside another stream"])
@pytest.mark.parametrize("prompt", ["endless", LONG_PROMPT], ids=["decoding", "prefill"])
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "in one piece"])
def test_leaving_frees_the_slot(slow: RunningDaemon, stream: bool, prompt: str, beside: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(beside):
            other = stack.enter_context(request(slow, "endless", stream=True))
            assert b"200 OK" in other.recv(65536)
        with request(slow, prompt, stream=stream):
            wait_until(lambda: slow.busy_slots("talker") == beside + 1, "the request reaches a slot")
        wait_until(lambda: slow.busy_slots("talker") == beside, "the slot is free")
    wait_until(lambda: slow.busy_slots("talker") == 0, "the other stream's slot is free")
    assert slow.model("talker")["leases"] == 0


TOOL = {"name": "ping", "parameters": {"type": "object", "properties": {}}}
LIMIT_TOKENS = 100_000
OPENAI_TOOLS = [{"type": "function", "function": TOOL}]


def of_messages(prompt: str) -> dict[str, Any]:
    return {"messages": said(prompt), "max_tokens": LIMIT_TOKENS}


def raw(prompt: str) -> dict[str, Any]:
    return {"prompt": "<|say:word:endless|>" if prompt == "endless" else prompt, "n_predict": LIMIT_TOKENS}


PATHS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "completions": ("/v1/completions", raw),
    "chat with tools": ("/v1/chat/completions", lambda prompt: {"messages": said(prompt), "tools": OPENAI_TOOLS}),
    "responses": ("/v1/responses", lambda prompt: {"input": prompt}),
    "responses with tools": (
        "/v1/responses",
        lambda prompt: {"input": prompt, "tools": [{"type": "function", **TOOL}]},
    ),
    "messages": ("/v1/messages", of_messages),
    "messages with tools": ("/v1/messages", lambda prompt: {**of_messages(prompt), "tools": [{"name": "ping"}]}),
    "messages, tool calls off": ("/v1/messages", lambda prompt: {**of_messages(prompt), "tool_calls": "off"}),
    "upstream chat": ("/upstream/talker/chat/completions", lambda prompt: {"messages": said(prompt)}),
    "upstream completion": ("/upstream/talker/completion", raw),
    "upstream responses": ("/upstream/talker/v1/responses", lambda prompt: {"input": prompt}),
    "upstream messages": ("/upstream/talker/v1/messages", of_messages),
}


MAIN = {"responses", "messages", "messages with tools", "upstream completion", "upstream messages"}


@pytest.mark.parametrize("prompt", ["endless", LONG_PROMPT], ids=["decoding", "prefill"])
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "in one piece"])
@pytest.mark.parametrize(
    "asked",
    [pytest.param(asked, id=name, marks=() if name in MAIN else pytest.mark.full) for name, asked in PATHS.items()],
)
def test_every_path_that_generates_stops_in_the_middle(
    slow: RunningDaemon, asked: tuple[str, Callable[[str], dict[str, Any]]], stream: bool, prompt: str
) -> None:
    """Measured in tokens, not in seconds: beside another stream a request that is not noticed runs to its end."""
    path, body = asked
    with request(slow, "endless", stream=True) as other:
        assert b"200 OK" in other.recv(65536)
        before = {slot["id_task"] for slot in slow.slots("talker") if slot["is_processing"]}
        with posted(slow, path, body(prompt), stream=stream):
            wait_until(lambda: slow.busy_slots("talker") == 2, "the request reaches a slot")
            (mine,) = (
                slot["id_task"]
                for slot in slow.slots("talker")
                if slot["is_processing"] and slot["id_task"] not in before
            )
        wait_until(lambda: slow.busy_slots("talker") == 1, "the slot is free")
        (left,) = (slot for slot in slow.slots("talker") if slot.get("id_task") == mine)
    decoded = left["next_token"][0]["n_decoded"]
    assert decoded < LIMIT_TOKENS // 4
    if prompt != "endless":
        assert (decoded, left["n_prompt_tokens"] < len(prompt)) == (0, True)
    wait_until(lambda: slow.busy_slots("talker") == 0, "the other stream's slot is free")
