"""The threads of a loop, and how they stand still while the process forks.

A forked copy has no threads. What was under way in one of them is never done there: who waits for it waits for ever,
and a lock that it held stays locked.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from supervisor.system.worker_thread import carry_out

_Result = TypeVar("_Result")


class Threads(ThreadPoolExecutor):
    """The default executor of a loop. A forked copy of the process has new ones in its place."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way: set[Future[Any]] = set()
        self._put_off: list[tuple[Future[Any], Callable[[], Any]]] | None = None
        _all.add(self)

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have something computed; see `Executor`."""
        if self._put_off is not None:
            future = Future[_Result]()
            self._put_off.append((future, partial(fn, *args, **kwargs)))
            return future
        future = super().submit(fn, *args, **kwargs)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    @asynccontextmanager
    async def still(self, within: float) -> AsyncIterator[None]:
        """Have nothing begin within the block; afterwards it does, in a forked copy as well.

        The block is entered once nothing is under way, or after so many seconds. To be called on the loop, once at a
        time.
        """
        self._put_off = []
        try:
            if self._under_way:
                await asyncio.wait([asyncio.wrap_future(one) for one in tuple(self._under_way)], timeout=within)
            yield
        finally:
            put_off, self._put_off = self._put_off, None
            for future, work in put_off:
                self.submit(carry_out, work, future)

    def _renew(self) -> None:
        super().__init__()
        self._under_way.clear()


_all: weakref.WeakSet[Threads] = weakref.WeakSet()


def _after_fork() -> None:
    for one in tuple(_all):
        one._renew()


os.register_at_fork(after_in_child=_after_fork)
