"""The pool over real engines: what it is told happens, what happens it tells, and nothing is left at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.engines.client import EngineUnreachable
from supervisor.errors import CrashLoop, ModelDoesNotFit, ModelLoadFailed, QueueFull, ShuttingDown
from supervisor.pool.lease import Lease
from supervisor.pool.pool import Pool, PoolLimits
from supervisor.system import processes
from tests.fakes import install_fake
from tests.shell.pools import PoolBench, chat
from tests.shell.waiting import until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

HELLO = "Hi."


@pytest.fixture
def bench(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> Iterator[PoolBench]:
    model = scripted_model(HELLO)
    bench = PoolBench(str(engine_binary), model, tmp_path)
    yield bench
    bench.log.close()
    assert bench.alive() == []
    assert all(processes.session_members(engine.pid) == () for engine in bench.engines if engine.pid is not None)


def pid_of(pool: Pool, model: str) -> int:
    best = pool.status(model).best
    assert best is not None
    assert best.pid is not None
    return best.pid


async def test_a_lease_is_an_engine_that_answers(bench: PoolBench) -> None:
    async with bench.pool() as pool:
        lease = await pool.acquire("a")
        assert await chat(lease) == HELLO
        assert pool.status("a").view.leases == 1
        lease.release()
        lease.release()
        status = pool.status("a")
        assert (status.view.state, status.view.leases) == (EngineState.READY, 0)
        assert status.engines[0].view.slots == 2


@pytest.mark.parametrize("how", ["unload", "leave", "shut down"])
async def test_what_is_read_for_nobody_any_more_is_called_off_at_once(how: str, bench: PoolBench) -> None:
    bench.endless = frozenset("a")
    async with bench.pool() as pool:
        asking = asyncio.ensure_future(pool.acquire("a"))
        await asyncio.sleep(0)
        lease = await pool.acquire("b")  # is not kept waiting by it
        lease.release()
        assert bench.called_off == []
        if how == "unload":
            pool.ask_unload("a")
        elif how == "leave":
            asking.cancel()
        else:
            pool.shut_down()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: bench.called_off == ["a"], "it is called off")


async def test_two_models_share_the_room_of_one(bench: PoolBench) -> None:
    async with bench.pool() as pool:
        for model in "abab":
            lease = await pool.acquire(model)
            assert await chat(lease) == HELLO
            lease.release()
        assert len(bench.engines) == 4
        assert len(bench.alive()) == 1


async def test_clients_of_three_models_at_once_are_all_served(bench: PoolBench) -> None:
    async def client(pool: Pool, model: str) -> None:
        for _ in range(4):
            lease = await pool.acquire(model)
            try:
                assert await chat(lease) == HELLO
            finally:
                lease.release()

    async with (
        bench.pool(SchedulerLimits(max_swap_wait=0.5)) as pool,
        asyncio.timeout(PATIENCE),
        asyncio.TaskGroup() as tasks,
    ):
        for model in "abcabcabc":
            tasks.create_task(client(pool, model))
    assert len(bench.engines) < 36, "not an engine for each request"


async def test_a_stopped_engine_is_found_out_and_replaced(bench: PoolBench) -> None:
    async with bench.pool(pool_limits=PoolLimits(probe=0.1, hung=3)) as pool:
        lease = await pool.acquire("a")
        os.kill(pid_of(pool, "a"), signal.SIGSTOP)
        asking = asyncio.create_task(chat(lease))
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(EngineUnreachable):
                await asking
            assert await lease.engine_gone(PATIENCE)
            assert not lease.engine_stopped, "so that the relay tries again"
            lease.release()
            again = await pool.acquire("a")
            assert await chat(again) == HELLO
            again.release()
    assert ("engine_hung", "a", "engine_hung") in bench.seen


async def test_an_engine_without_its_socket_is_found_out(bench: PoolBench) -> None:
    async with bench.pool(pool_limits=PoolLimits(probe=0.1, hung=3)) as pool:
        (await pool.acquire("a")).release()
        os.unlink(bench.engines[0].socket)
        async with asyncio.timeout(PATIENCE):
            await pool._first("a", lambda status: status.view.state is EngineState.FAILED)
        failure = pool.status("a").view.failure
        assert failure is not None
        assert failure.code == "engine_hung"


async def test_a_busy_engine_is_not_taken_for_a_hung_one(
    engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    bench = PoolBench(str(engine_binary), scripted_model("on and on ", endless=True), tmp_path)
    async with bench.pool(pool_limits=PoolLimits(probe=0.01, hung=PATIENCE)) as pool:
        lease, other = await pool.acquire("a"), await pool.acquire("a")

        async def on_and_on(one: Lease) -> None:
            while True:
                await chat(one, length=4000)

        asking = asyncio.gather(on_and_on(lease), on_and_on(other))
        await bench.more_answers(3)
        assert not asking.done(), "it was at work"
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        lease.release()
        other.release()
        assert [event for event, _, _ in bench.seen] == ["engine_start", "engine_ready"]
    bench.log.close()


async def test_an_idle_engine_ends_after_its_time(bench: PoolBench) -> None:
    bench.policies = {"a": ModelPolicy(ttl=0.3)}
    async with bench.pool() as pool:
        (await pool.acquire("a")).release()
        async with asyncio.timeout(PATIENCE):
            await pool._first("a", lambda status: status.view.state is EngineState.STOPPED)
        assert bench.alive() == []


async def test_the_next_load_waits_until_the_memory_shows_as_free(bench: PoolBench) -> None:
    async with bench.pool(pool_limits=PoolLimits(room=20, room_poll=0.01)) as pool:
        (await pool.acquire("a")).release()
        bench.hidden["GPU0"] = 10  # the driver takes its time
        waiting = asyncio.create_task(pool.acquire("b"))
        await until(lambda: bench.looks > 5, "the room is looked for again and again")
        assert len(bench.engines) == 1
        bench.hidden.clear()
        (await waiting).release()


async def test_memory_that_never_shows_is_planned_without(bench: PoolBench) -> None:
    async with bench.pool(pool_limits=PoolLimits(room=0.05, room_poll=0.01)) as pool:
        (await pool.acquire("a")).release()
        bench.hidden["GPU0"] = 4
        with pytest.raises(ModelDoesNotFit, match="needs 10, there are 6"):
            await pool.acquire("b")
    assert ("room_not_seen", "b", None) in bench.seen


async def test_what_cannot_be_learned_of_a_model_is_the_answer(bench: PoolBench) -> None:
    bench.unreadable = {"a": ModelLoadFailed("cut off"), "b": RuntimeError("a bug")}
    async with bench.pool() as pool:
        with pytest.raises(ModelLoadFailed, match="cut off"):
            await pool.acquire("a")
        with pytest.raises(ModelLoadFailed, match="Internal error"):
            await pool.acquire("b")
        (await pool.acquire("c")).release()


async def test_a_client_that_leaves_before_the_load_is_over_ends_the_load(bench: PoolBench, tmp_path: Path) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--load-time", "60")}
    async with bench.pool() as pool:
        waiting = asyncio.create_task(pool.acquire("a"))
        await until(lambda: pool.status("a").view.state is EngineState.LOADING, "it loads")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(PATIENCE):
            status = await pool.at_rest("a")
        assert status.view.state is EngineState.STOPPED


async def test_an_engine_that_always_dies_is_left_alone(bench: PoolBench, tmp_path: Path) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--exit-before-ready", "--exit-code", "3")}
    bench.policies = {"a": ModelPolicy(pinned=True)}
    async with bench.pool(SchedulerLimits(crash_failures=3, backoff_base=0.05)) as pool:
        with pytest.raises(ModelLoadFailed, match="exit code 3"):
            await pool.acquire("a")
        async with asyncio.timeout(PATIENCE):
            await pool._first("a", lambda status: status.view.state is EngineState.FAILED)
        assert len(bench.engines) == 3
        with pytest.raises(CrashLoop, match="failed 3 times"):
            await pool.acquire("a")
        assert len(bench.engines) == 3


async def test_a_full_queue_says_when_to_come_back(bench: PoolBench) -> None:
    async with bench.pool(SchedulerLimits(max_waiting_model=1)) as pool:
        first = asyncio.create_task(pool.acquire("a"))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as refused:
            await pool.acquire("a")
        assert refused.value.retry_after >= 1
        (await first).release()


@pytest.mark.parametrize("patient", [True, False])
async def test_shutting_down_waits_for_requests_unless_asked_twice(
    bench: PoolBench, patient: bool, tmp_path: Path
) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--ignore-sigterm", "--ignore-exit-line")}
    async with bench.pool(SchedulerLimits(drain=30)) as pool:
        lease = await pool.acquire("a")
        pool.shut_down()
        with pytest.raises(ShuttingDown):
            await pool.acquire("b")
        drained = asyncio.create_task(pool.drained())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not drained.done()
        if patient:
            lease.release()
        else:
            pool.shut_down()
        await drained
        told = any("ignores SIGTERM" in line for line in bench.log.tail(100))
        assert told is patient, "only the second one sends SIGKILL without having asked"
        lease.release()


async def test_engines_end_side_by_side(bench: PoolBench, tmp_path: Path) -> None:
    bench.room = {"GPU0": 30}
    bench.binary = install_fake(tmp_path)
    bench.arguments = dict.fromkeys("abc", ("--ignore-sigterm", "--ignore-exit-line"))
    async with bench.pool() as pool:
        for model in "abc":
            (await pool.acquire(model)).release()
        pool.shut_down()
        asked = "ignores the exit line"
        await until(lambda: sum(asked in line for line in bench.log.tail(100)) == 3, "all of them are asked")
        assert len(bench.alive()) == 3, "none was waited for before the next was asked"
        await pool.drained()


async def test_unload_returns_when_every_process_is_gone(bench: PoolBench) -> None:
    bench.room = {"GPU0": 30}
    bench.policies = {"a": ModelPolicy(replicas_min=2, replicas_max=2)}
    async with bench.pool() as pool:
        pool.ask_load("a")
        await until(lambda: all(one.ready for one in pool.status("a").engines), "both are ready")
        leases = [await pool.acquire("a", key) for key in ("x", "y", "x")]
        assert [lease.engine for lease in leases] == [bench.engines[0], bench.engines[1], bench.engines[0]]
        for lease in leases:
            lease.release()
        await pool.unload("a")
        assert bench.alive() == []


async def test_a_model_is_empty_once_the_last_engine_has_ended_as_it_was_told_to(bench: PoolBench) -> None:
    """What the next daemon loads again: not a model whose engines were only exchanged, or one whose engine crashed."""
    bench.room = {"GPU0": 40}
    bench.policies = {"a": ModelPolicy(replicas_min=2, replicas_max=2)}
    async with bench.pool() as pool:
        pool.ask_load("a")
        pool.ask_load("b")
        await until(lambda: len(pool.status("a").engines) == 2, "there are two")
        await until(lambda: all(one.ready for one in (*pool.status("a").engines, *pool.status("b").engines)), "all run")
        os.kill(pid_of(pool, "b"), signal.SIGKILL)
        await until(lambda: any(one[0] == "engine_gone" for one in bench.seen), "it is noticed")
        assert bench.emptied == []
        await pool.unload("a")
        assert bench.emptied == ["a"]
