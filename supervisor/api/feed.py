"""What changes, as server-sent events: the state is looked at after every change and told where it differs.

There is no queue: who reads slowly is told the newest state when it reads on, and what came and went between is left
out. All readers share the looks (`looks.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from copy import copy
from dataclasses import dataclass

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from supervisor.errors import TooManyReaders
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.asgi import SSE_HEADERS
from supervisor.service.looks import Look, Looks, event

MOST_READERS = 64
"""Clients that may follow events or logs at a time: one that stops reading keeps what it was told last."""

KEEP_ALIVE_S = 15.0
_PAUSE_S = 0.05  # between two looks, so that heavy traffic does not cost a look for every request


@dataclass
class Seats:
    """The readers of events and logs: how many there are."""

    taken: int = 0


class Feed:
    """Tells everybody who listens.

    Attributes:
        seats: of all who listen.
    """

    def __init__(self, pool: Pool, inflight: Inflight, looks: Looks) -> None:
        self._pool = pool
        self._inflight = inflight
        self._looks = looks
        self._closing = asyncio.Event()
        self._sees: Callable[[str], bool] | None = None
        self._ended: Callable[[], bool] = lambda: False
        self.seats = Seats()

    def of_key(self, sees: Callable[[str], bool] | None, ended: Callable[[], bool]) -> Feed:
        """Return the same for one reader: the models that it sees, None for all; nothing once its key has `ended`."""
        found = copy(self)
        found._sees, found._ended = sees, ended
        return found

    def now(self) -> Look:
        """The state as it is, as far as it is seen."""
        look = self._looks.now()
        return look if self._sees is None else look.limited(self._sees)

    async def until_ended(self, told: AsyncIterator[str]) -> AsyncIterator[str]:
        """Pass on what is told until the reader's key has ended; from then on, not a byte."""
        async for piece in told:
            if self._ended():
                return
            yield piece

    def close(self) -> None:
        """Let go whoever listens."""
        self._closing.set()

    async def events(self, keep_alive: float = KEEP_ALIVE_S) -> AsyncGenerator[str]:
        """`snapshot` with `models` and `requests`; then `model`, `model_removed`, `request` and `request_done`.

        A comment after every `keep_alive` seconds of silence. Ends when the daemon does.
        """
        before = self.now()
        snapshot = {
            "models": [status.to_json() for status in before.models.values()],
            "requests": [request.to_json() for request in before.requests.values()],
        }
        yield event("snapshot", snapshot)
        async for heard in self.changes(keep_alive):
            now = self.now()
            told, before = now.since(before), now
            if told or not heard:
                yield told or ": keep-alive\n\n"

    async def changes(self, keep_alive: float = KEEP_ALIVE_S) -> AsyncIterator[bool]:
        """True after changes, never more often than every `_PAUSE_S`; False after `keep_alive` seconds without one."""
        with self._pool.watch() as changed, self._inflight.watch(changed):
            closing = asyncio.ensure_future(self._closing.wait())
            waiting = asyncio.ensure_future(changed.wait())
            try:
                while not closing.done():
                    await asyncio.wait({waiting, closing}, timeout=keep_alive, return_when=asyncio.FIRST_COMPLETED)
                    heard = waiting.done()
                    changed.clear()
                    if heard:
                        waiting = asyncio.ensure_future(changed.wait())
                    yield heard
                    await asyncio.sleep(_PAUSE_S)
            finally:
                waiting.cancel()
                closing.cancel()


class Followed(StreamingResponse):
    """An answer that goes on until the client leaves. One too many is TooManyReaders: each keeps what is unread."""

    def __init__(self, feed: Feed, told: AsyncIterator[str], headers: Mapping[str, str]) -> None:
        super().__init__(feed.until_ended(told), headers=headers)
        self._seats = feed.seats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._seats.taken >= MOST_READERS:
            raise TooManyReaders(f"{MOST_READERS} clients follow events or logs; end some of them.", retry_after=5)
        self._seats.taken += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seats.taken -= 1


class EventStream(Followed):
    """An answer of events."""

    def __init__(self, feed: Feed, told: AsyncIterator[str]) -> None:
        super().__init__(feed, told, {name.decode(): value.decode() for name, value in SSE_HEADERS})
