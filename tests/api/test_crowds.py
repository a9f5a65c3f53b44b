"""Many at once: streams that all end whole, and connections that are kept open and stay of use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

STREAMS, IDLE, FILES = 256, 2000, 4096
ASKED = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
SAID = b'{"status":"ok"}'


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may hold so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip("the limit on open files is too low here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    models = {"talker": {"file": str(talker), "parallel": 32, "ctx_size": 32768}}
    settings = {"models": models, "server": {"max_connections": IDLE + 100, "idle_timeout": PATIENCE}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        running.load("talker")
        yield running


def address(daemon: RunningDaemon) -> tuple[str, int]:
    host, port = daemon.url.removeprefix("http://").split(":")
    return host, int(port)


async def streamed(daemon: RunningDaemon, all_ask: asyncio.Event) -> str:
    """The text of one stream, once everybody is connected. Fails unless it ends as a stream should."""
    reader, writer = await asyncio.open_connection(*address(daemon))
    asked = {"model": "talker", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    body = json.dumps(asked).encode()
    await all_ask.wait()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    answer = (await reader.read()).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 200")
    events = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    deltas = (json.loads(event)["choices"][0]["delta"] for event in events)
    return "".join(delta.get("content") or "" for delta in deltas)


def test_every_one_of_many_streams_is_whole(daemon: RunningDaemon) -> None:
    async def all_at_once() -> list[str]:
        all_ask = asyncio.Event()
        asking = [asyncio.ensure_future(streamed(daemon, all_ask)) for _ in range(STREAMS)]
        await asyncio.sleep(0)
        all_ask.set()
        return await asyncio.gather(*asking)

    assert asyncio.run(all_at_once()) == [HELLO] * STREAMS
    status = daemon.model("talker")
    assert (status["leases"], status["waiting"]) == (0, 0)


def answered(client: socket.socket) -> None:
    """Ask once more on a connection that stays."""
    client.sendall(ASKED)
    said = b""
    while SAID not in said:
        said += (piece := client.recv(65536))
        assert piece, "the connection stays"
    assert said.startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("many_files")
def test_idle_connections_stay_and_cost_nobody_an_answer(daemon: RunningDaemon) -> None:
    with contextlib.ExitStack() as held:
        kept = [held.enter_context(socket.create_connection(address(daemon), PATIENCE)) for _ in range(IDLE)]
        for client in kept:
            answered(client)
        assert daemon.chat("talker", "Hi").json()["choices"][0]["message"]["content"] == HELLO
        for client in kept:
            answered(client)
    assert "connections_full" not in (daemon.home / "daemon-output.log").read_text()
