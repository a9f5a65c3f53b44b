"""HTTP to one engine over its Unix socket.

A client of its own because relaying is what the daemon does all day: a streamed event costs one parse in C, one
append and at most one wake-up here, and a slow reader holds the engine back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httptools

_CONNECT_S = 10.0
_READ_BUFFER = 1 << 18  # bytes that may wait for a slow client before the engine is held back


class EngineUnreachable(Exception):
    """The engine does not take the connection, broke it off, or does not speak HTTP."""


class EngineResponse:
    """An answer whose head is there and whose body is on its way."""

    def __init__(self, exchange: _Exchange) -> None:
        self.status: int = exchange.status
        self.content_type = exchange.content_type
        self._exchange = exchange

    async def read_some(self) -> bytes:
        """All that has arrived since the last time, waiting for something; empty at the end.

        Raises EngineUnreachable where the engine breaks off.
        """
        return await self._exchange.read_some()

    async def read(self) -> bytes:
        """The whole rest of the body."""
        parts = []
        while part := await self.read_some():
            parts.append(part)
        return b"".join(parts)

    async def json(self) -> Any:
        """The whole body, parsed; raises ValueError where it is not JSON."""
        return json.loads(await self.read())


class EngineClient:
    """One engine's HTTP client; every request has a connection of its own.

    A connection that is never reused cannot be stale, so a failure before the first byte always means that the
    engine did not take the request; connecting to a Unix socket costs about 0.1 ms.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._open: set[asyncio.Transport] = set()

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[EngineResponse]:
        """POST JSON. Leaving the block before the answer is complete closes the connection, which ends the work.

        Raises EngineUnreachable.
        """
        head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        async with self._exchange(head, body) as response:
            yield response

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[EngineResponse]:
        """GET; otherwise as `post`."""
        async with self._exchange(f"GET {path} HTTP/1.1\r\n", b"") as response:
            yield response

    def close(self) -> None:
        """Break off what is open; whoever reads an answer gets EngineUnreachable."""
        for transport in tuple(self._open):
            transport.abort()

    @asynccontextmanager
    async def _exchange(self, head: str, body: bytes) -> AsyncIterator[EngineResponse]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                transport, exchange = await loop.create_unix_connection(lambda: _Exchange(loop), self._socket)
        except (OSError, TimeoutError) as error:
            raise EngineUnreachable(f"The engine cannot be reached at {self._socket}: {error}.") from error
        self._open.add(transport)
        try:
            transport.writelines([f"{head}Host: engine\r\nConnection: close\r\n\r\n".encode(), body])
            await exchange.head()
            yield EngineResponse(exchange)
        finally:
            self._open.discard(transport)
            transport.abort()


class _Exchange(asyncio.Protocol):
    """One connection: parses what the engine sends, keeps it until it is read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.content_type = ""  # without parameters
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size = 0
        self._has_head = False
        self._complete = False
        self._broken: EngineUnreachable | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False

    async def head(self) -> None:
        """Return when status and headers are there."""
        while not self._has_head:
            await self._more()

    async def read_some(self) -> bytes:
        """See `EngineResponse.read_some`."""
        while not self._parts:
            if self._complete:
                return b""
            await self._more()
        found = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return found

    async def _more(self) -> None:
        if self._broken is not None:
            raise self._broken
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it, for flow control."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        """Parse; hold the engine back where nobody reads."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._broken = EngineUnreachable(f"The engine's answer is not HTTP: {error}.")
        if self._size > _READ_BUFFER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """The end, proper or not."""
        if not self._complete and self._broken is None:
            self._broken = EngineUnreachable(f"The engine closed the connection ({error or 'no reason given'}).")
        self._transport = None
        self._wake()

    # what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the one header that matters."""
        if name.lower() == b"content-type":
            self.content_type = value.partition(b";")[0].strip().decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self.status = self._parser.get_status_code()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body, without the chunks' frames."""
        self._parts.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self._complete = True
