"""What an engine is told of the trace that its request belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from supervisor.api.errors import render_error
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.engines.client import EngineClient
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.account import Begins, Observer, ignored
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.naming import Naming
from supervisor.proxy.relay import Relaying, relay_endpoints
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting
from tests.proxy.asking import answer_of


class _Lending:
    """Stands for a pool that lends its one engine, and for the lease."""

    number = 1

    def __init__(self, client: EngineClient) -> None:
        self.client = client

    async def acquire(self, model: str, affinity: str | None = None, wait: object = None) -> _Lending:
        return self

    def release(self) -> None:
        pass


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/m/v1/chat/completions", "/upstream/m/anything"])
def test_an_engine_is_told_of_the_trace(path: str, tmp_path: Path) -> None:
    """Its head has the lines that the tracer wants there, and none where nothing is traced."""
    line = "traceparent: 00-1-2-01\r\n"
    seen: list[tuple[bytes, bytes]] = []

    def begins(headers: Sequence[tuple[bytes, bytes]], at: float) -> tuple[str, Observer]:
        seen.extend(headers)
        return line, ignored

    given = [(b"traceparent", b"theirs")]
    head = asyncio.run(_head_of(path, tmp_path / "engine.sock", begins, given))
    assert line.encode() in head
    assert b"theirs" not in head
    assert seen == given
    assert b"traceparent" not in asyncio.run(_head_of(path, tmp_path / "other.sock", None, given))


async def _head_of(path: str, socket: Path, begins: Begins | None, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of the request that the engine gets."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_unix_server(answer, socket):
        relaying = _relaying(cast(Pool, _Lending(EngineClient(str(socket)))), begins)
        endpoint = relay_endpoints(relaying).get(path) or upstream_endpoint(relaying, lambda: 0)
        where = {"path": path, "raw_path": path.encode(), "query_string": b""}
        body = b'{"model": "m", "messages": []}'
        await answer_of(endpoint, {"method": "POST", **where, "headers": headers}, body)
    return heads[-1]


def _relaying(pool: Pool, begins: Begins | None) -> Relaying:
    inflight, registry = Inflight(lambda: 0.0), Registry([ModelEntry("m", Source.FILE, "/m.gguf")])
    return Relaying(
        pool=pool,
        registry=registry,
        inflight=inflight,
        bodies=Bodies(1 << 20, 1 << 20),
        render_error=render_error,
        tool_calls=ToolCalls(),
        waiting=Waiting(pool, inflight, lambda: 0.0),
        naming=Naming(registry, frozenset, lambda: None),
        begins=begins,
    )
