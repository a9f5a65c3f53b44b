"""A client that goes away frees its slot: streaming or not, in prefill and in decoding, alone or beside another stream.

No answer here ends by itself, so that a slot that is free was freed. How quickly, `benchmarks/relay.py` measures.
The engine itself says whether a slot is at work (`GET /slots` on its socket).
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

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


@contextlib.contextmanager
def request(daemon: RunningDaemon, prompt: str, *, stream: bool) -> Iterator[socket.socket]:
    """Send a request over a bare connection, which is closed at the end of the block."""
    body = {"model": "talker", "stream": stream, "messages": [{"role": "user", "content": prompt}]}
    payload = json.dumps(body).encode()
    host, port = daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        start = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
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
            wait_until(lambda: slow.busy_slots("talker") == beside + 1, 20, "the request reaches a slot")
        wait_until(lambda: slow.busy_slots("talker") == beside, 20, "the slot is free")
    wait_until(lambda: slow.busy_slots("talker") == 0, 5, "the other stream's slot is free")
    assert slow.model("talker")["leases"] == 0
