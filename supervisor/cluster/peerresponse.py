"""An answer of another node, as it arrives: bounded in what is not its body, and handed on in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import httptools

from supervisor.engines.client import AnswerTooLarge

_READ_BUFFER: Final = 1 << 18
_LONGEST_HEAD: Final = 1 << 18
_MOST_FIELDS: Final = 256
_HOP_BY_HOP: Final = frozenset({
    b"connection",
    b"keep-alive",
    b"transfer-encoding",
    b"te",
    b"trailer",
    b"upgrade",
    b"proxy-connection",
})
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class PeerUnreachable(Exception):
    """The node could not be asked, or broke off.

    Attributes:
        sent: it may have got the request.
        refused: nobody listens there.
    """

    def __init__(self, message: str, *, sent: bool, refused: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.refused = refused


class Source(Protocol):
    """The connection on which an answer arrives."""

    def hold(self) -> None:
        """Read no more for now."""

    def go_on(self) -> None:
        """Read again."""


class PeerResponse:
    """An answer. bare: it has no body, whatever it says.

    Attributes:
        headers: without those of the connection.
        began: some of it has come.
    """

    def __init__(self, connection: Source, *, bare: bool = False) -> None:
        self.status = 0
        self.content_type = ""
        self.headers: list[tuple[bytes, bytes]] = []
        self.began = False
        self.has_head = False
        self._connection = connection
        self._bodiless = bare
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size = 0
        self._bare = 0
        self._has_body = False
        self._complete = False
        self._framed = False
        self._keeps = False
        self._held = False
        self._broken: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Callable[[bytes], bool] | None = None
        self._full = False

    @property
    def is_complete(self) -> bool:
        """True if all of the body has come and was taken."""
        return self._complete and not self._parts

    @property
    def may_rest(self) -> bool:
        """True if the connection can be used again."""
        return self._complete and self._framed and self._keeps and self._broken is None

    async def head(self) -> None:
        """Wait until status and headers are there."""
        while not self.has_head:
            await self._more()

    async def read_some(self) -> bytes:
        """Return all that has arrived since the last time, after waiting for something; empty at the end."""
        while not self._parts:
            if self._complete:
                return b""
            await self._more()
        return self._take()

    async def read(self, most: int) -> bytes:
        """Return the rest of the body. Raise AnswerTooLarge where it has more than `most` bytes."""
        found = b""
        while part := await self.read_some():
            found += part
            if len(found) > most:
                raise AnswerTooLarge(f"it has more than {most} bytes")
        return found

    async def pipe(self, sink: Callable[[bytes], bool]) -> bool:
        """Hand the body to `sink` as it arrives. Returns True at its end, False when `sink` did: call it again."""
        self._sink, self._full = sink, False
        try:
            if self._parts:
                self._full = not sink(self._take())
            while not (self._full or self._complete):
                await self._more()
        finally:
            self._sink = None
        if self._broken is not None and not self._complete:
            raise self._broken
        return not self._full

    def feed(self, data: bytes) -> None:
        """Parse what has arrived."""
        if self._broken is not None:
            return
        self.began = True
        try:
            self._parser.feed_data(data)
            self._check(len(data))
            if self.has_head and self._parts and self._sink is not None:
                self._full = not self._sink(self._take())
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._broken = PeerUnreachable(f"its answer is not HTTP: {error}", sent=True)
        except Exception as error:  # noqa: BLE001 - the sink's own: for who called `pipe`
            self._broken = error
        over = self._complete or self._full or self._broken is not None
        if self._size > _READ_BUFFER or self._full:
            self._held = True
            self._connection.hold()
        if over or self._sink is None:
            self._wake()

    def broke(self, why: str) -> None:
        """Take the end of the connection for the end of a body that has no other."""
        self._keeps = False
        if self.has_head and not self._framed:
            self._complete = True
        if not self._complete and self._broken is None:
            self._broken = PeerUnreachable(why, sent=True)
        self._wake()

    def _check(self, size: int) -> None:
        """Count bytes that came without any of the body: of the head, of chunks' frames, of what follows the body."""
        if self._has_body:
            self._has_body, self._bare = False, 0
            return
        self._bare += size
        if self._complete and self._bare > size:
            self._keeps = False  # it says more than was asked
        if self._bare > _LONGEST_HEAD and not self._complete:
            raise httptools.HttpParserError(f"more than {_LONGEST_HEAD} bytes between two pieces of a body")

    def _take(self) -> bytes:
        found = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return found

    async def _more(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._held:
            self._held = False
            self._connection.go_on()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the answer, not one that is about the connection."""
        if self.has_head:
            return  # a trailer
        name = name.lower()
        if len(self.headers) >= _MOST_FIELDS:
            raise httptools.HttpParserError("too many headers")
        self._framed = self._framed or name in _FRAMING
        if name not in _HOP_BY_HOP:
            self.headers.append((name, value))
        if name == b"content-type":
            self.content_type = value.partition(b";")[0].strip().decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """Take the status, unless the answer is yet to come."""
        status = self._parser.get_status_code()
        if status in {100, 102, 103}:
            self.headers.clear()
            return
        self.status, self.has_head = status, True
        self._keeps = self._parser.should_keep_alive()
        self._framed = self._framed or self._bodiless or status in {204, 304}
        self._complete = self._complete or self._bodiless

    def on_body(self, body: bytes) -> None:
        """Keep a piece."""
        if self._bodiless:
            raise httptools.HttpParserError("an answer without a body has one")
        self._has_body = True
        self._parts.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        """Note the end, unless it is that of an interim answer."""
        if self.has_head:
            self._complete = True
