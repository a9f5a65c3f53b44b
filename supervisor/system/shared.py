"""One answer for all who ask at the same time: however many ask, the work is done once at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_Found = TypeVar("_Found")


class Shared(Generic[_Found]):
    """Work whose result may serve several. Nobody gets a result of work that began before they asked.

    Whoever is cancelled while the work is done for them ends it; the next one has it done anew.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._begun = 0
        self._last: tuple[int, _Found] | None = None

    async def get(self, work: Callable[[], Awaitable[_Found]]) -> _Found:
        """Return the result of the work. Raises what it does, to the one for whom it was done."""
        asked = self._begun
        async with self._turn:
            if self._last is None or self._last[0] <= asked:
                self._begun += 1
                self._last = self._begun, await work()
            return self._last[1]
