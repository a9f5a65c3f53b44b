"""HTTP to one engine over its Unix socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp

_JSON = {"Content-Type": "application/json"}
_NO_LIMIT = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=10, sock_read=None)
_READ_BUFFER = 1 << 18  # bytes that may wait for a slow client before the engine is held back


class EngineClient:
    """One engine's HTTP client; every request has a connection of its own.

    A connection that is never reused cannot be stale, so a failure before the first byte always means that the
    engine did not take the request; connecting to a Unix socket costs about 0.1 ms.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None
        self._open: set[aiohttp.ClientResponse] = set()

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        """POST JSON. Leaving the block before the answer is complete closes the connection, which ends the work.

        Raises aiohttp.ClientError where the engine cannot be reached or breaks off.
        """
        async with self._opened().post(f"http://engine{path}", data=body, headers=_JSON) as response:
            with self._tracked(response):
                yield response

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """GET; errors as with `post`."""
        async with self._opened().get(f"http://engine{path}") as response:
            with self._tracked(response):
                yield response

    async def close(self) -> None:
        """Close what is open; whoever reads an answer gets an aiohttp.ClientError."""
        for response in tuple(self._open):
            response.close()  # the session alone would leave its readers waiting for ever
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def _tracked(self, response: aiohttp.ClientResponse) -> Iterator[None]:
        self._open.add(response)
        try:
            yield
        finally:
            self._open.discard(response)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.UnixConnector(path=self._socket, limit=0, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=_NO_LIMIT, auto_decompress=False, read_bufsize=_READ_BUFFER
            )
        return self._session
