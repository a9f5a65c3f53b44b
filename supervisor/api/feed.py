"""What changes, as server-sent events: the state is looked at after every change and told where it differs.

There is no queue: who reads slowly is told the newest state when it reads on, and what came and went between is left
out. All readers share the looks (`looks.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from supervisor.api.service import Service
from supervisor.errors import TooManyReaders
from supervisor.proxy.asgi import SSE_HEADERS
from supervisor.service.looks import event

MOST_READERS = 64
"""Clients that may read events at a time: one that stops reading keeps what it was told last."""

KEEP_ALIVE_S = 15.0
_PAUSE_S = 0.05  # between two looks, so that heavy traffic does not cost a look for every request


class EventStream(StreamingResponse):
    """An answer of events. A client that would be one too many gets TooManyReaders in its place."""

    def __init__(self, service: Service, told: AsyncIterator[str]) -> None:
        super().__init__(told, headers={name.decode(): value.decode() for name, value in SSE_HEADERS})
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._service.readers >= MOST_READERS:
            raise TooManyReaders(f"{MOST_READERS} clients read events already; end some of them.", retry_after=5)
        self._service.readers += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.readers -= 1


async def events(service: Service, keep_alive: float = KEEP_ALIVE_S) -> AsyncGenerator[str]:
    """`snapshot` with `models` and `requests`; then `model`, `model_removed`, `request` and `request_done`.

    A comment after every `keep_alive` seconds of silence. Ends when the daemon does.
    """
    before = service.looks.now()
    yield event("snapshot", {"models": [*before.models.values()], "requests": [*before.requests.values()]})
    async for heard in changes(service, keep_alive):
        now = service.looks.now()
        told, before = now.since(before), now
        if told or not heard:
            yield told or ": keep-alive\n\n"


async def changes(service: Service, keep_alive: float) -> AsyncIterator[bool]:
    """True after changes, never more often than every `_PAUSE_S`; False after `keep_alive` seconds without one."""
    with service.pool.watch() as changed, service.inflight.watch(changed):
        closing = asyncio.ensure_future(service.closing.wait())
        try:
            while not closing.done():
                waiting = asyncio.ensure_future(changed.wait())
                await asyncio.wait({waiting, closing}, timeout=keep_alive, return_when=asyncio.FIRST_COMPLETED)
                heard = waiting.done()
                waiting.cancel()
                changed.clear()
                yield heard
                await asyncio.sleep(_PAUSE_S)
        finally:
            closing.cancel()
