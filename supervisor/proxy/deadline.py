"""A time limit that is moved far more often than it is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

_TICK = 0.001  # the clock of an event loop is no finer


class Deadline:
    """A timer that calls `reached` once the time is over.

    Setting it anew is cheap: it is moved only to an earlier time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, reached: Callable[[], None]) -> None:
        self._loop = loop
        self._reached = reached
        self._at = inf
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = inf

    def within(self, seconds: float) -> None:
        """Set the time to so many seconds from now, instead of the one that was set."""
        self._at = self._loop.time() + seconds
        if self._at < self._rings_at:
            self._wind()

    def off(self) -> None:
        """Remove the limit, until the next one is set."""
        self._at = inf

    def close(self) -> None:
        """Remove the limit for good."""
        self.off()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._at
        self._timer = self._loop.call_at(self._at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._rings_at = inf
        if self._at == inf:
            return
        if self._at - self._loop.time() > _TICK:
            self._wind()
            return
        self._at = inf
        self._reached()
