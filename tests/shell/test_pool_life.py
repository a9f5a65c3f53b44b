"""The pool over real engines: what engines remember across their ends, how much they may grow, what a resume does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.lifecycle import EngineState
from supervisor.core.schedule import ModelPolicy
from supervisor.kv_store import SlotStore
from supervisor.pool import Pool
from tests.shell.pools import PoolBench, processed
from tests.support.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

LONG = "word " * 100


@pytest.fixture
def bench(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> Iterator[PoolBench]:
    bench = PoolBench(str(engine_binary), scripted_model("Hi."), tmp_path)
    bench.store = SlotStore(tmp_path / "kv", 1 << 26)
    yield bench
    bench.log.close()
    assert bench.alive() == []


async def once(pool: Pool, model: str) -> int:
    """Tokens processed for one request."""
    lease = await pool.acquire(model)
    try:
        return await processed(lease, LONG)
    finally:
        lease.release()


async def test_a_conversation_survives_the_swap(bench: PoolBench) -> None:
    async with bench.pool() as pool:
        assert await once(pool, "a") > 400
        assert await once(pool, "b") > 400
        assert await once(pool, "a") <= 1
        assert await once(pool, "b") <= 1
    assert len(bench.engines) == 4, "room for one"


async def test_without_it_everything_is_processed_again(bench: PoolBench) -> None:
    bench.store = None
    async with bench.pool() as pool:
        before = await once(pool, "a")
        await once(pool, "b")
        assert await once(pool, "a") == before


async def test_it_survives_idleness_and_unloading(bench: PoolBench) -> None:
    bench.policies = {"a": ModelPolicy(ttl=0.2)}
    async with bench.pool() as pool:
        await once(pool, "a")
        async with asyncio.timeout(10):
            await pool._first("a", lambda status: status.view.state is EngineState.STOPPED)
        assert await once(pool, "a") <= 1
        await pool.unload("a")
        assert await once(pool, "a") <= 1


async def test_an_unload_that_is_in_a_hurry_saves_nothing(bench: PoolBench) -> None:
    async with bench.pool() as pool:
        before = await once(pool, "a")
        lease = await pool.acquire("a")
        await pool.unload("a", now=True)
        lease.release()
        assert await once(pool, "a") == before
