"""Nodes that say nothing any more: who waits for an answer of them is told so, as connections may hang for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from supervisor.core.cluster.directory import Directory, Seen

_LOOK_S: Final = 1.0
_LATE_S: Final = 3.0


async def hang_up_on_silent(
    directory: Directory, drop: Callable[[Seen], Awaitable[None]], clock: Callable[[], float]
) -> None:
    """End the answers of silent nodes. Runs until it is cancelled.

    drop: closes all connections to a node. clock: seconds of a monotonic clock.
    """
    calm_since = before = clock()
    while True:
        await asyncio.sleep(_LOOK_S)
        now = clock()
        if now - before > _LATE_S:  # this process stood still, and has heard nothing
            calm_since = now
        before = now
        if now - calm_since < _LATE_S:
            continue
        for seen in directory:
            if seen.node.name != directory.me and directory.is_silent(seen, now):
                await drop(seen)
