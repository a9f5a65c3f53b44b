"""The store of a cluster, on a real NATS server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from supervisor.cluster.joining import begin
from supervisor.cluster.kept import Server
from supervisor.cluster.natsserver import NatsServer
from supervisor.cluster.natsstore import NatsStore
from supervisor.cluster.store import Entry
from tests.support.patience import PATIENCE
from tests.support.ports import free_pair, free_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_who_begins_anew_hears_everything_once(tmp_path: Path) -> None:
    """As a node does whenever it is connected again."""
    kept = begin(tmp_path, "first", ("127.0.0.1", free_port()), [Server("127.0.0.1", free_pair())])
    (records := tmp_path / "records").mkdir()
    server = NatsServer(kept, os.environ, records)
    store = NatsStore(kept.servers, kept.dialling(), kept.own, lambda _: None)
    entries: list[Entry] = []
    loads: list[bytes] = []
    last = asyncio.Event()

    def hear(load: bytes) -> None:
        loads.append(load)
        if load == b"last":
            last.set()

    try:
        await server.start()
        await store.connect()
        for _ in range(3):
            await store.ready()
            await store.watch("claims", entries.append)
            await store.publish(b"begun", hear)
        created = await store.create("claims", "key", b"value")
        await store.publish(b"last")
        async with asyncio.timeout(PATIENCE):
            await last.wait()
        again = asyncio.Event()
        await store.watch("nodes", lambda _: again.set())  # what was told of claims before has come by then
        await store.put("nodes", "n", b"value")
        async with asyncio.timeout(PATIENCE):
            await again.wait()
    finally:
        await store.close()
        await server.close()
    assert entries == [created]
    assert loads == [b"begun", b"begun", b"begun", b"last"]
