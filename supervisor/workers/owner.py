"""Whose a connection on the loopback interface is: local users can reach ports there, and must get nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import psutil

from supervisor.system.shared import Shared

Ends: TypeAlias = tuple[tuple[str, int], tuple[str, int]]
"""Host and port of the other end of a connection, and of this one."""

Look: TypeAlias = Callable[[], Mapping[Ends, int]]
"""Finds the connections of processes, by their ends as they are seen from here, with whose they are. Blocks."""


class Owners:
    """Those of connections. There is one look for all who asked before it began, however many others connect.

    look: see `Look`.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._shared: Shared[Mapping[Ends, int]] = Shared()

    async def of(self, ends: Ends) -> int | None:
        """Return the process whose connection it is; None: it is none of those that are looked at."""
        return (await self._shared.get(partial(asyncio.to_thread, self._look))).get(ends)


def connections_below(parent: int) -> Mapping[Ends, int]:
    """Return the connections of all descendants of a process: see `Look`."""
    try:
        processes = psutil.Process(parent).children(recursive=True)
    except psutil.Error:
        return {}
    return {ends: one.pid for one in processes for ends in _of(one)}


def _of(process: psutil.Process) -> list[Ends]:
    try:
        connections = process.net_connections("tcp4")
    except psutil.Error:
        return []
    return [((one.laddr.ip, one.laddr.port), (one.raddr.ip, one.raddr.port)) for one in connections if one.raddr]
