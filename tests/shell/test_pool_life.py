"""The pool over real engines: what engines remember across their ends, how much they may grow, what a resume does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor.core.schedule import ModelPolicy
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.engines.llama.slots import SlotStore
from supervisor.pool.pool import Pool, PoolLimits
from tests.fakes import install_fake
from tests.shell.pools import PoolBench, processed
from tests.shell.waiting import until
from tests.support.patience import PATIENCE
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
        async with asyncio.timeout(PATIENCE):
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


async def test_an_engine_that_outgrows_its_plan_starts_anew_when_it_is_idle(bench: PoolBench, tmp_path: Path) -> None:
    bench.store, bench.allowed = None, 600 << 20
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--grow", "700")}
    async with bench.pool(pool_limits=PoolLimits(probe=0.1, growth=0.5)) as pool:
        lease = await pool.acquire("a")
        await bench.more_answers(1)  # it was weighed once as it was
        os.kill(pid_of(bench), signal.SIGUSR1)
        await until(lambda: ("engine_outgrown", "a", "engine_outgrown") in bench.seen, "it is noticed")
        assert len(bench.engines) == 1
        assert pool.status("a").view.leases == 1, "its request goes on"
        bench.arguments = {}
        lease.release()
        await until(lambda: len(bench.engines) == 2, "another takes its place")
        async with asyncio.timeout(PATIENCE):
            await pool.at_rest("a")
        (await pool.acquire("a")).release()
        assert len(bench.engines) == 2
        assert sum(event == "engine_outgrown" for event, _, _ in bench.seen) == 1


async def test_within_its_limit_it_may_grow(bench: PoolBench, tmp_path: Path) -> None:
    bench.store, bench.allowed = None, 600 << 20
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--grow", "200")}
    async with bench.pool(pool_limits=PoolLimits(probe=0.1)) as pool:
        (await pool.acquire("a")).release()
        await bench.more_answers(1)
        os.kill(pid_of(bench), signal.SIGUSR1)
        await until(lambda: (bench.engines[0].memory() or 0) > 200 << 20, "it grows")
        await bench.more_answers(3)
        assert [event for event, _, _ in bench.seen] == ["engine_start", "engine_ready"]


def pid_of(bench: PoolBench) -> int:
    """The process of the first engine."""
    pid = bench.engines[0].pid
    assert pid is not None
    return pid


def stopped(pid: int) -> bool:
    """Whether no thread of the process runs any more."""
    states = [file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED and set(states) <= {"T"}


async def test_after_a_resume_every_engine_is_asked_at_once(bench: PoolBench) -> None:
    async with bench.pool(pool_limits=PoolLimits(probe=600, hung=2)) as pool:
        (await pool.acquire("a")).release()
        pid = pid_of(bench)
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: stopped(pid), "it is stopped")  # a thread that still ran would answer
        pool.probe()
        async with asyncio.timeout(PATIENCE):
            await pool._first("a", lambda status: status.view.state is EngineState.FAILED)
        assert await once(pool, "a") > 0
        seen = bench.answers
        pool.probe()
        await until(lambda: bench.answers > seen, "the new one is asked at once, too, and answers")
        assert pool.status("a").view.state is EngineState.READY
