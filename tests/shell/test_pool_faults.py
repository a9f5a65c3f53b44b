"""The pool and engines that fail in ways of their own: what waiting requests get, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.schedule.lifecycle import EngineState
from supervisor.engines.llama.slots import SlotStore
from supervisor.errors import ModelLoadFailed
from supervisor.pool.pool import PoolLimits
from supervisor.system import processes
from tests.fakes import install_fake
from tests.shell.pools import PoolBench, chat
from tests.shell.waiting import until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

HELLO = "Hi."
LOST = "decode() failed: vk::Queue::submit: ErrorDeviceLost"
SPENT = "decode() failed: vk::Device::allocateMemory: ErrorOutOfDeviceMemory"
SHORT = "0.1 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CUDA0 buffer of size 8589934592"


@pytest.fixture
def bench(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> Iterator[PoolBench]:
    bench = PoolBench(str(engine_binary), scripted_model(HELLO), tmp_path)
    yield bench
    bench.log.close()
    assert bench.alive() == []
    assert all(processes.session_members(engine.pid) == () for engine in bench.engines if engine.pid is not None)


async def test_who_waits_gets_the_second_try_and_hears_nothing_of_the_first(bench: PoolBench, tmp_path: Path) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--exit-before-ready", "--exit-code", "1", "--last-words", SHORT)}
    bench.others = {"a": ("--load-time", "0.1")}
    async with bench.pool() as pool:
        leases = await asyncio.gather(pool.acquire("a"), pool.acquire("a"))
        assert len(bench.engines) == 2
        (failure,) = bench.failures
        assert (failure.code, failure.device, failure.lacking) == ("out_of_memory", "CUDA0", 8 << 30)
        assert pool.status("a").view.failure is None
        for lease in leases:
            lease.release()


async def test_with_nothing_else_to_try_the_cause_is_the_answer(bench: PoolBench, tmp_path: Path) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--exit-before-ready", "--exit-code", "1", "--last-words", SHORT)}
    async with bench.pool() as pool:
        with pytest.raises(ModelLoadFailed, match="Out of memory on CUDA0: a buffer of 8192 MiB") as refused:
            await pool.acquire("a")
        assert refused.value.code == "out_of_memory"
        assert refused.value.log_lines[0].endswith("buffer of size 8589934592")
    assert len(bench.engines) == 1


@pytest.mark.parametrize(
    ("code", "device", "answered", "lines"),
    [
        ("device_lost", None, LOST, (f"E srv  update_slots: {LOST}",)),
        ("device_lost", None, LOST, ()),
        ("device_lost", None, "Compute error.", ("E srv  decode: Compute error. off = 0, n_batch = 32, ret = -3",)),
        (
            *("out_of_memory", "GPU0", SPENT),
            ("ggml_vulkan: Device memory allocation of size 1048576 failed.", f"E srv  update_slots: {SPENT}"),
        ),
    ],
)
@pytest.mark.parametrize("first", ["log", "answer"])
async def test_an_engine_whose_device_failed_is_replaced(
    bench: PoolBench, tmp_path: Path, code: str, device: str | None, answered: str, lines: tuple[str, ...], first: str
) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": tuple(word for line in lines for word in ("--says", line))}
    async with bench.pool() as pool:
        lease = await pool.acquire("a")
        assert lease.engine.pid is not None
        if first == "answer":
            lease.note_broken(answered)
        os.kill(lease.engine.pid, signal.SIGUSR1)
        if first == "log":
            await until(lambda: set(lines) <= set(lease.engine.tail(10)), "its log says why")
            assert not lease.engine.broken.done(), "clients can write lines of the log"
            lease.note_broken(answered)
        assert await lease.engine_gone(PATIENCE)
        assert lease.broken is not None
        assert (lease.broken.code, lease.broken.device) == (code, device)
        assert "while the engine of 'a' was answering" in lease.broken.message
        assert lease.broken.log_lines
        assert not lease.engine_stopped, "so that its requests are tried again"
        lease.release()
        again = await pool.acquire("a")
        assert again.number != lease.number
        again.release()
    assert ("engine_broken", "a", code) in bench.seen
    assert [failure.code for failure in bench.failures] == ["out_of_memory"] * (code == "out_of_memory")


async def test_a_load_that_nobody_waits_for_is_not_tried_otherwise(bench: PoolBench, tmp_path: Path) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--load-time", "60")}
    bench.others = {"a": ()}
    async with bench.pool() as pool:
        waiting = asyncio.create_task(pool.acquire("a"))
        await until(lambda: pool.status("a").view.state is EngineState.LOADING, "it loads")
        waiting.cancel()
        await asyncio.wait({waiting})
        async with asyncio.timeout(PATIENCE):
            await pool.at_rest("a")
    assert bench.failures == []
    assert len(bench.engines) == 1


async def test_an_engine_that_leaves_with_exit_code_0_has_failed_all_the_same(bench: PoolBench, tmp_path: Path) -> None:
    bench.binary = install_fake(tmp_path)
    bench.arguments = {"a": ("--exit-code", "0")}
    async with bench.pool() as pool:
        lease = await pool.acquire("a")
        assert lease.engine.pid is not None
        os.kill(lease.engine.pid, signal.SIGUSR2)
        assert await lease.engine_gone(PATIENCE)
        failure = pool.status("a").view.failure
        assert failure is not None
        assert (failure.code, "exit code 0" in failure.message) == ("engine_lost", True)
        assert not lease.engine_stopped
        lease.release()
        bench.arguments = {}
        (await pool.acquire("a")).release()


async def test_an_engine_behind_a_wrapper_that_forks_serves_and_ends(
    bench: PoolBench, engine_binary: Path, tmp_path: Path
) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n{engine_binary} "$@"\nexit $?\n', encoding="utf-8")
    wrapper.chmod(0o755)
    bench.binary = str(wrapper)
    async with bench.pool() as pool:
        lease = await pool.acquire("a")
        assert await chat(lease) == HELLO
        lease.release()
        assert bench.engines[0].pid is not None
        assert len(processes.session_members(bench.engines[0].pid)) == 2
        os.kill(bench.engines[0].pid, signal.SIGKILL)  # the wrapper alone
        await until(lambda: pool.status("a").view.state is not EngineState.READY, "it is noticed")
        again = await pool.acquire("a")
        assert await chat(again) == HELLO
        again.release()


async def test_an_engine_that_hangs_while_its_slots_are_to_be_saved_makes_room_all_the_same(bench: PoolBench) -> None:
    bench.store = SlotStore(bench.folder / "kv", 1 << 26, within=0.5)
    async with bench.pool(pool_limits=PoolLimits(probe=600)) as pool:
        lease = await pool.acquire("a")
        await chat(lease)
        lease.release()
        assert bench.engines[0].pid is not None
        os.kill(bench.engines[0].pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            other = await pool.acquire("b")
        assert await chat(other) == HELLO
        other.release()
