"""The pool in a storm: engines killed or stopped at any moment, clients that vanish, loads, unloads and reloads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.engines.client import EngineUnreachable
from supervisor.errors import SupervisorError
from supervisor.pool.pool import Pool, PoolLimits
from supervisor.system import processes
from supervisor.system.owned import MARKER
from tests.shell.pools import PoolBench, chat
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

CLIENTS = 8
LIMITS = SchedulerLimits(
    max_waiting_model=6, max_swap_wait=0.5, crash_failures=4, crash_window=5.0, backoff_base=0.1, backoff_max=0.5
)
POLICIES = {
    "a": ModelPolicy(replicas_max=2),
    "b": ModelPolicy(ttl=0.2, priority=1, groups=frozenset({"bc"})),
    "c": ModelPolicy(preload=True, groups=frozenset({"bc"})),
}
FAILED = {"model_load_failed", "engine_killed", "engine_stalled", "crash_loop"}
ANSWERS = {"ok", "gone", "left", "load_cancelled", "queue_full", *FAILED}


class Storm:
    """Clients, and whoever does harm, for some seconds."""

    def __init__(self, bench: PoolBench, pool: Pool, seed: int) -> None:
        self.bench = bench
        self.pool = pool
        self.random = random.Random(seed)
        self.over = False
        self.seen: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CLIENTS):
                tasks.create_task(self.client())
            tasks.create_task(self.harm())
            tasks.create_task(self.people())
            await asyncio.sleep(seconds)
            self.over = True

    async def client(self) -> None:
        while not self.over:
            patience = self.random.choice([0.01, 0.3, PATIENCE])
            try:
                async with asyncio.timeout(patience):
                    self.seen[await self.request(self.random.choice("abc"))] += 1
            except TimeoutError:
                assert patience < PATIENCE, "a request was never answered"
                self.seen["left"] += 1
            await asyncio.sleep(self.random.random() * 0.1)

    async def request(self, model: str) -> str:
        try:
            lease = await self.pool.acquire(model, self.random.choice([None, "x", "y"]))
        except SupervisorError as error:
            return error.code
        try:
            assert lease.model == model
            await chat(lease)
        except EngineUnreachable:
            return "gone"
        finally:
            lease.release()
        return "ok"

    async def harm(self) -> None:
        while not self.over:
            await asyncio.sleep(self.random.random() * 0.6)
            pids = [engine.pid for engine in self.bench.alive() if engine.pid is not None]
            with contextlib.suppress(IndexError, ProcessLookupError):  # there is none, or it has died by itself
                pid = self.random.choice(pids)
                os.kill(pid, self.random.choice([signal.SIGKILL, signal.SIGSTOP]))
                if self.random.random() < 0.5:
                    await asyncio.sleep(0.4)  # of those it goes on: a slow load, or a pause
                    os.kill(pid, signal.SIGCONT)

    async def people(self) -> None:
        while not self.over:
            await asyncio.sleep(self.random.random())
            model = self.random.choice("abc")
            what = self.random.random()
            if what < 0.4:
                self.pool.ask_load(model, fresh=self.random.random() < 0.3)
            elif what < 0.7:  # as a reloaded configuration does
                self.pool.policies_changed()
                self.pool.launch_changed(model)
            else:
                self.pool.ask_unload(model, now=self.random.random() < 0.3)


async def answers(pool: Pool, model: str) -> bool:
    """Whether the model serves now."""
    pool.ask_load(model)  # forgives crashes
    try:
        lease = await pool.acquire(model)
        try:
            async with asyncio.timeout(3):
                return bool(await chat(lease))
        finally:
            lease.release()
    except (SupervisorError, EngineUnreachable, TimeoutError):
        return False


async def until_it_answers(pool: Pool, model: str) -> None:
    """When the storm is over every model serves, once the engines that it left stopped are found out."""
    async with asyncio.timeout(PATIENCE):
        while not await answers(pool, model):
            pass  # each try ends with an answer, an error or its own time limit


async def storm(engine: Path, model: Path, folder: Path, *, seconds: float, seed: int) -> None:
    bench = PoolBench(str(engine), model, folder, room={"GPU0": 10, "GPU1": 10}, policies=POLICIES)
    tasks = len(asyncio.all_tasks())
    async with bench.pool(LIMITS, PoolLimits(room=1.0, room_poll=0.05, probe=0.1, hung=1.0)) as pool:
        found = Storm(bench, pool, seed)
        await found.run(seconds)
        assert set(found.seen) <= ANSWERS, found.seen
        assert found.seen["ok"], found.seen  # how many is a matter of the machine
        for name in "abc":
            await until_it_answers(pool, name)
        views = [pool.status(name).view for name in "abc"]
        assert [(view.leases, view.waiting) for view in views] == [(0, 0)] * 3
    assert len(asyncio.all_tasks()) <= tasks, "a task is left"
    bench.log.close()
    assert bench.alive() == []
    assert all(processes.session_members(one.pid) == () for one in bench.engines if one.pid is not None)
    assert os.listdir(folder / "run") == [MARKER]


async def test_a_storm_loses_nothing(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> None:
    await storm(engine_binary, scripted_model("Hi."), tmp_path, seconds=8.0, seed=1)


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_a_long_storm_loses_nothing(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> None:
    await storm(engine_binary, scripted_model("Hi."), tmp_path, seconds=100.0, seed=1)
