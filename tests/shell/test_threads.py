"""Threads that stand still while the process forks."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from supervisor.system.threads import Threads
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
def threads() -> Threads:
    return Threads()


async def test_what_is_under_way_is_waited_for_and_nothing_begins(threads: Threads) -> None:
    gate, told = threading.Event(), list[str]()
    under_way = asyncio.wrap_future(threads.submit(lambda: gate.wait(PATIENCE)))
    asyncio.get_running_loop().call_soon(gate.set)
    async with threads.still(PATIENCE):
        assert under_way.done()
        later = asyncio.wrap_future(threads.submit(told.append, "later"))
        dropped = threads.submit(told.append, "dropped")
        dropped.cancel()
        failing = asyncio.wrap_future(threads.submit(lambda: 1 // 0))
        await asyncio.wrap_future(Threads().submit(int))
        assert told == []
    await later
    with pytest.raises(ZeroDivisionError):
        await failing
    assert told == ["later"]


async def test_a_copy_of_the_process_does_what_was_put_off(threads: Threads) -> None:
    async with threads.still(PATIENCE):
        put_off = threads.submit(lambda: 7)
        pid = os.fork()
    if pid == 0:
        os._exit(put_off.result(PATIENCE) + threads.submit(lambda: 30).result(PATIENCE))
    assert put_off.result(PATIENCE) == 7
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 37


async def test_what_takes_too_long_is_not_waited_for(threads: Threads) -> None:
    gate = threading.Event()
    slow = threads.submit(lambda: gate.wait(PATIENCE))
    async with threads.still(0):
        assert not slow.done()
    gate.set()
    assert slow.result(PATIENCE)
