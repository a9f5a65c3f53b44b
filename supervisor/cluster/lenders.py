"""Nodes that are asked for files of models: who has one, and its bytes. What they say is bounded in size and time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Final

import msgspec

from supervisor.cluster.peerclient import PeerClient
from supervisor.cluster.peerresponse import PeerResponse, PeerUnreachable
from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.messages import Host, NodeName, Port, Serial
from supervisor.core.cluster.ranges import Range, range_told

_KEPT_UP: Final = 1 << 20
_LONGEST_PAUSE_S: Final = 5.0

Failed = Callable[[str, str], None]
"""Is told the name of a node that is asked no more, and why."""


class Lender(msgspec.Struct, frozen=True):
    """A node that is asked. serial: of its certificate."""

    name: NodeName
    host: Host
    port: Port
    serial: Serial


class Faulty(Exception):
    """A node's answer is not what was asked for."""


class Busy(Exception):
    """A node sends as many files as it may. seconds: after which it is worth another try."""

    def __init__(self, seconds: float) -> None:
        super().__init__("it is busy")
        self.seconds = seconds


class Lenders:
    """The nodes.

    Args:
        context: how they are dialled.
        patience: seconds in which an answer's head has to come, and then each MiB of its body.
        asking: seconds in which a node has to say whether it has a file.
        failed: is told of nodes that are asked no more.
    """

    def __init__(
        self, nodes: Sequence[Lender], context: ssl.SSLContext, patience: float, asking: float, failed: Failed
    ) -> None:
        self._clients = {one.name: PeerClient(one.host, one.port, context, Peer(one.name, one.serial)) for one in nodes}
        self._all = tuple(self._clients.values())
        self._patience = patience
        self._asking = asking
        self._tell = failed

    def holders(self, sha256: str, size: int) -> Holders:
        """Ask all nodes who has this content, of so many bytes."""
        return Holders({name: self._has(name, sha256, size) for name in self._clients}, self._asking, self.failed)

    def failed(self, name: str, why: str) -> None:
        """Ask a node no more."""
        if self._clients.pop(name, None) is not None:
            self._tell(name, why)

    async def close(self) -> None:
        """Close all connections."""
        for one in self._all:
            await one.close()
        await asyncio.sleep(0)  # for the loop to close them

    async def part(self, name: str, sha256: str, part: Range, take: Callable[[bytes], None]) -> None:
        """Hand one range of a content to `take`, in pieces, which are no more than that range.

        Raises PeerUnreachable, Faulty, Busy, TimeoutError, and what `take` does.
        """
        client, loop = self._clients[name], asyncio.get_running_loop()
        left, since = part.length, 0

        def arrived(piece: bytes) -> bool:
            nonlocal left, since
            if len(piece) > left:
                raise Faulty(f"it sends more than the {part.length} bytes that were asked for")
            take(piece)
            left -= len(piece)
            since += len(piece)
            if since >= _KEPT_UP:
                since = 0
                limit.reschedule(loop.time() + self._patience)
            return True

        request = client.send("GET", f"/cluster/blobs/{sha256}", [("range", part.asked())], b"", safe=True)
        async with asyncio.timeout(self._patience) as limit, request as answer:
            _check(answer, sha256, part)
            limit.reschedule(loop.time() + self._patience)
            await answer.pipe(arrived)
        if left:
            raise Faulty(f"its answer has {part.length - left} bytes, not {part.length}")

    async def _has(self, name: str, sha256: str, size: int) -> bool:
        """Return whether a node has a content."""
        try:
            request = self._clients[name].send("HEAD", f"/cluster/blobs/{sha256}", [], b"", safe=True)
            async with request as answer:
                right = answer.status == 200 and _header(answer, b"content-length") == str(size)
                return right and _is(answer, sha256)
        except PeerUnreachable as error:
            self.failed(name, str(error))
            return False


class Holders:
    """The nodes that have a content, as they say so."""

    def __init__(self, asked: Mapping[str, Coroutine[object, object, bool]], seconds: float, failed: Failed) -> None:
        self._asked = {asyncio.ensure_future(work): name for name, work in asked.items()}
        self._seconds = seconds  # that are still waited for those that have said nothing
        self._failed = failed
        self._found: list[str] = []

    async def next(self, without: Collection[str]) -> str | None:
        """Return the first that has it and is not among these, after waiting for one; None: there is none."""
        loop = asyncio.get_running_loop()
        while True:
            for name in self._found:
                if name not in without:
                    return name
            if not self._asked:
                return None
            began = loop.time()
            told, _ = await asyncio.wait(
                self._asked, timeout=max(0.0, self._seconds), return_when=asyncio.FIRST_COMPLETED
            )
            self._seconds -= loop.time() - began
            if not told:
                for name in self._asked.values():
                    self._failed(name, "it does not say in time whether it has the file")
                self.close()
            for one in told:
                name = self._asked.pop(one)
                if one.result():
                    self._found.append(name)

    def close(self) -> None:
        """Ask nobody any more."""
        for one in self._asked:
            one.cancel()
        self._asked.clear()


def _check(answer: PeerResponse, sha256: str, part: Range) -> None:
    """Raise Faulty or Busy for an answer that is not this range of this content."""
    if answer.status == 503:
        said = _header(answer, b"retry-after")
        known = said.isascii() and said.isdecimal() and len(said) < 9
        raise Busy(min(float(said), _LONGEST_PAUSE_S) if known else 1.0)
    if answer.status != 206:
        raise Faulty(f"it answers {answer.status}")
    told = _header(answer, b"content-range")
    if range_told(told) != part or not _is(answer, sha256):
        raise Faulty(f"it answers with {told[:80]!a} where {part.told()!r} was asked for")


def _is(answer: PeerResponse, sha256: str) -> bool:
    return _header(answer, b"etag") == f'"{sha256}"'


def _header(answer: PeerResponse, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in answer.headers if key == name), "")
