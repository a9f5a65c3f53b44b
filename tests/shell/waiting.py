"""Waiting for what sends no event, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from supervisor.system import processes
from tests.support.patience import PATIENCE


async def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Return as soon as the condition holds; fail with `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.005)


async def until_gone(pid: int) -> None:
    """Wait for the end of a process that is not ours to reap."""
    await until(lambda: not processes.is_running(pid), f"process {pid} ends")
