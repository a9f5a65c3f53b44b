"""Work that is only for the client that asked for it: it ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

_Result = TypeVar("_Result")


async def while_there(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of the work; a client that leaves cancels it, and what that takes is waited for.

    Raises what the work does, and ClientDisconnect, which nobody reads any more. The body has to be read before.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.wait({task, gone})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        """A part of a body that nobody waits for."""
