"""A connection on which messages go both ways, a line each."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import cast

import msgspec

from supervisor.core.workers.messages import MOST_LINE, line_of


class Lines:
    """One connection. Lines are at most `MOST_LINE` long: a longer one ends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, host: str, port: int, context: ssl.SSLContext, within: float) -> Lines:
        """Connect. Raises OSError (ssl.SSLError and TimeoutError included)."""
        async with asyncio.timeout(within):
            return cls(*await asyncio.open_connection(host, port, ssl=context, server_hostname="", limit=MOST_LINE))

    async def line(self, within: float) -> bytes:
        """Return the next line; empty at the end. Raises OSError, TimeoutError, ValueError for one that is too long."""
        async with asyncio.timeout(within):
            return await self.reader.readline()

    def say(self, message: msgspec.Struct) -> None:
        """Send a message; nothing where the connection is closed."""
        if not self.writer.is_closing():
            self.writer.write(line_of(message))

    async def close(self) -> None:
        """Close it, after what has been said."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self.writer.wait_closed()

    @property
    def transport(self) -> asyncio.Transport:
        """Transport below, for one who goes on with it."""
        return cast(asyncio.Transport, self.writer.transport)

    def abort(self) -> None:
        """Close it at once."""
        self.writer.transport.abort()
