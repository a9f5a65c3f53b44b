"""Threads of their own for what asks a hub and for what reads whole files: nobody else waits for what is slow there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from supervisor.errors import HubBusy

_MOST_WAITING = 64

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Aside:
    """A few threads, and a bound on who may wait for one."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + _MOST_WAITING
        self._asked = 0

    async def __call__(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return the result of `work`. Raises HubBusy where too many wait already, and what `work` does."""
        if self._asked >= self._most:
            raise HubBusy("Too many requests wait for the hub; try again in a moment.")
        self._asked += 1
        doing = asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **kwargs))
        doing.add_done_callback(self._done)
        return await doing

    def _done(self, _doing: asyncio.Future[_T]) -> None:
        self._asked -= 1


ask_hub = Aside(8, "hub")
"""For what may wait for a hub's answer."""

check_files = Aside(1, "verify")
"""For what reads models whole."""
