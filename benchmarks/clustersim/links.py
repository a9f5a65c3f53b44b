"""The ways from nodes to NATS servers, as a process of its own: passes bytes on, counts them, and can be cut.

Reads a line of JSON: the servers' ports, and how many nodes there are. Writes one: for each node its port of each
server. Then it takes commands: `cut N` and `mend N` of a node, and `count`, which is answered with all bytes so far.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast


class _End(asyncio.Protocol):
    """One end of a connection; what comes goes to the other one."""

    def __init__(self, links: _Links, node: int) -> None:
        self.links, self.node = links, node
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.links.ends[self.node].add(self)
        if self.node in self.links.cuts:
            self.transport.pause_reading()

    def join(self, other: _End) -> None:
        """Have what has come, and what will come, go there."""
        self.other = other
        for piece in self._early:
            self._pass_on(piece)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        self.links.bytes += len(data)
        if self.other is None:
            self._early.append(data)
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.links.ends[self.node].discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Near(_End):
    """The end of a node: it dials the server."""

    def __init__(self, links: _Links, node: int, port: int) -> None:
        super().__init__(links, node)
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dialling = asyncio.ensure_future(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, far = await loop.create_connection(lambda: _End(self.links, self.node), "127.0.0.1", self._port)
        except OSError:
            assert self.transport is not None
            self.transport.abort()
            return
        far.join(self)
        self.join(far)


class _Links:
    """All of them."""

    def __init__(self, nodes: int) -> None:
        self.bytes = 0
        self.cuts: set[int] = set()
        self.ends: list[set[_End]] = [set() for _ in range(nodes)]

    def cut(self, node: int) -> None:
        """Have nothing get through."""
        self.cuts.add(node)
        for one in self.ends[node]:
            if one.transport is not None:
                one.transport.pause_reading()

    def mend(self, node: int) -> None:
        """Have everything get through again."""
        self.cuts.discard(node)
        for one in self.ends[node]:
            if one.transport is not None and not one.transport.is_closing():
                one.transport.resume_reading()


async def main() -> None:
    """Run until nobody gives commands any more."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    asked = json.loads(await reader.readline())
    links = _Links(asked["nodes"])
    found = []
    for node in range(asked["nodes"]):
        ports = []
        for port in asked["ports"]:
            listener = await loop.create_server(
                lambda node=node, port=port: _Near(links, node, port),  # type: ignore[misc]  # bound at once
                *("127.0.0.1", 0),
            )
            ports.append(listener.sockets[0].getsockname()[1])
        found.append(ports)
    print(json.dumps(found), flush=True)
    while line := (await reader.readline()).decode().split():
        match line:
            case ["cut", number]:
                links.cut(int(number))
            case ["mend", number]:
                links.mend(int(number))
            case _:
                print(links.bytes, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
