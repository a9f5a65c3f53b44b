"""The clock of the daemon, which counts suspensions; notices them; turns its times into those of the calendar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_EVERY_S = 2.0
_LEAST_S = 1.0
_COUNTS_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def lifetime() -> float:
    """Return seconds that never go back; a suspension counts where the platform can tell."""
    return time.monotonic() if _COUNTS_SUSPENSION is None else time.clock_gettime(_COUNTS_SUSPENSION)


class Epoch:
    """Turns times of `lifetime` into seconds since 1970.

    The same time always gives the same figure, until somebody sets the system's clock by _LEAST_S or more: otherwise
    the two clocks, read one after the other, would give another fraction of a second at every call.
    """

    def __init__(self, lifetime: Callable[[], float] = lifetime, epoch: Callable[[], float] = time.time) -> None:
        self._lifetime, self._epoch = lifetime, epoch
        self._offset = epoch() - lifetime()

    def __call__(self, at: float) -> float:
        """Return seconds since 1970, to the millisecond."""
        offset = self._epoch() - self._lifetime()
        if abs(offset - self._offset) >= _LEAST_S:
            self._offset = offset
        return round(at + self._offset, 3)


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
