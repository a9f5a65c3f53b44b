"""An event loop whose time goes on at once to when the next thing is due. Nothing real can be waited for in it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Stuck(AssertionError):
    """Nothing is due, and somebody waits."""


class _Ahead(selectors.SelectSelector):
    """Waits by setting the time."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nothing is due, and somebody waits")
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. Its time begins at 0."""

    def __init__(self) -> None:
        self._ahead = _Ahead()
        super().__init__(self._ahead)
        self.unhandled: list[Mapping[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.unhandled.append(context))

    def time(self) -> float:
        return self._ahead.now


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of the work, in a loop of its own; nothing that it began lives on. Raises what nobody took."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        found = loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
    assert not loop.unhandled, loop.unhandled
    return found
