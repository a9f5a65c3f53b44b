"""Work that goes on whatever happens, and waits that end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

_log = structlog.get_logger()

_AGAIN_S: Final = 1.0


async def lasting(work: Callable[[], Awaitable[None]]) -> None:
    """Do what lasts. A bug that ends it is in the log, and does not keep this node from its part for good."""
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - a bug, whatever brings it out
            _log.exception("cluster_work_failed")
        await asyncio.sleep(_AGAIN_S)


async def woken(changed: asyncio.Event, within: float) -> bool:
    """Wait for an event, and return whether it has come."""
    try:
        async with asyncio.timeout(within):
            await changed.wait()
    except TimeoutError:
        return False
    return True
