"""Notices that the machine was suspended: the clock that counts it has gone ahead of the one that does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_EVERY_S = 2.0
_LEAST_S = 1.0
_COUNTS_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def lifetime() -> float:
    """Seconds that never go back, those of a suspension counted where the platform can."""
    return time.monotonic() if _COUNTS_SUSPENSION is None else time.clock_gettime(_COUNTS_SUSPENSION)


async def watch_for_resume(
    resumed: Callable[[float], None],
    *,
    lifetime: Callable[[], float] = lifetime,
    awake: Callable[[], float] = time.monotonic,
    every: float = _EVERY_S,
) -> None:
    """Call `resumed` with the seconds of each suspension, soon after it; runs until it is cancelled.

    Args:
        lifetime: counts suspensions.
        awake: does not.
        every: seconds between two looks.
    """
    before = lifetime() - awake()
    while True:
        await asyncio.sleep(every)
        now = lifetime() - awake()
        if now - before >= _LEAST_S:
            resumed(now - before)
        before = now
