"""The least that a relay in Python can be: bytes are passed on both ways, and nothing is looked at.

    python -m benchmarks.bare PORT TARGET

It listens on PORT of 127.0.0.1 and has a connection of its own to TARGET for each of its clients. What it costs is the
floor under what this program's relay can cost on the same event loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import cast

import uvloop


class _Side(asyncio.Protocol):
    """One of the two connections of a client: what arrives is written to the other."""

    def __init__(self) -> None:
        self.other: asyncio.Transport | None = None
        self.transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self.other is None:
            self._early += data
        else:
            self.other.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        """End the other as well."""
        if self.other is not None:
            self.other.close()

    def joined(self, other: asyncio.Transport) -> None:
        """From now on there is another side."""
        self.other = other
        if self._early:
            other.write(self._early)


class _Client(_Side):
    def __init__(self, target: int) -> None:
        super().__init__()
        self._target = target
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the target."""
        super().connection_made(transport)
        self._joining = asyncio.get_running_loop().create_task(self._join())

    async def _join(self) -> None:
        loop = asyncio.get_running_loop()
        found, engine = await loop.create_connection(_Side, "127.0.0.1", self._target)
        assert self.transport is not None  # it is connected
        engine.joined(self.transport)
        self.joined(found)


async def relay(port: int, target: int) -> None:
    """Serve until cancelled."""
    server = await asyncio.get_running_loop().create_server(partial(_Client, target), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main(argv: Sequence[str]) -> int:
    """Serve until ended by a signal."""
    port, target = map(int, argv)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(relay(port, target))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
