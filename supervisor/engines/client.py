"""Talk HTTP to one engine over its Unix socket, or a port of this machine.

A client of its own because relaying is what the daemon does all day. A request goes out in the moment in which it is
made: connecting to a Unix socket does not wait. A streamed event costs one read, one parse in C and one call, and no
task is woken for it (`EngineResponse.pipe`); a slow reader holds the engine back.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final

import httptools

from supervisor.core.text.foreignjson import parse
from supervisor.engines.connect import Address, EngineUnreachable, NotTaken, connected

__all__ = [
    "MOST_TOLD",
    "Address",
    "AnswerTooLarge",
    "EngineClient",
    "EngineRequest",
    "EngineResponse",
    "EngineUnreachable",
    "NotTaken",
    "Payload",
]

_READ_BUFFER = 1 << 18  # bytes that may wait for a slow client before the engine is held back
_PIECE = 1 << 16  # bytes read at once
_TURN = 1 << 18  # bytes sent before others on the loop are served
_LONGEST_HEAD = 1 << 18  # bytes of status and headers; and of what frames a body, between two pieces of it
_AT_ONCE = 1 << 14  # bytes of JSON that are parsed on the loop that relays
_INTERIM = frozenset({100, 102, 103})  # statuses of answers that come before the one
_STATUSES = range(200, 600)  # and of that
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})

MOST_TOLD: Final = 4 << 20
"""Bytes of an answer that is read as a whole: a model's template decides how much some of them say."""

Payload = bytes | Sequence[bytes | memoryview]
"""A body in one, or in pieces that are sent one after the other."""


class AnswerTooLarge(ValueError):
    """An answer has more bytes than whoever reads it takes."""


class EngineClient:
    """The HTTP client of one engine; every request has a connection of its own.

    A connection that is never reused cannot be stale, so a failure before the first byte always means that the
    engine did not take the request; connecting to a Unix socket costs about 0.02 ms.
    """

    def __init__(self, path: Address) -> None:
        self.address = self._path = path
        self._open: set[EngineResponse] = set()

    def post(self, path: str, body: Payload, more: str = "") -> EngineRequest:
        """Post JSON; `async with` gives the response. more: further header lines."""
        head = f"POST {path} HTTP/1.1\r\n{more}Content-Type: application/json\r\nContent-Length: {_size(body)}\r\n"
        return EngineRequest(self._path, self._open, head, body)

    def get(self, path: str) -> EngineRequest:
        """Request a path with GET; `async with` gives the response."""
        return EngineRequest(self._path, self._open, f"GET {path} HTTP/1.1\r\n", b"")

    def send(self, method: str, target: str, body: Payload, content_type: str, more: str = "") -> EngineRequest:
        """Send any request; `async with` gives the response.

        target: path and query, percent-encoded. more: further header lines.
        """
        length = f"Content-Type: {content_type}\r\nContent-Length: {_size(body)}\r\n" if body or method != "GET" else ""
        return EngineRequest(self._path, self._open, f"{method} {target} HTTP/1.1\r\n{more}{length}", body)

    async def reach(self) -> None:
        """Connect, and send nothing. Raise EngineUnreachable."""
        (await connected(self._path)).close()

    def close(self) -> None:
        """Break off all that is open; whoever reads an answer gets EngineUnreachable."""
        for response in tuple(self._open):
            response.abort()


class EngineRequest:
    """A request that is sent by `async with`, which gives its response once status and headers are there.

    Leaving the block before the answer is complete closes the connection, which ends the work. Raises
    EngineUnreachable.
    """

    def __init__(self, path: Address, among: set[EngineResponse], head: str, body: Payload) -> None:
        self._path = path
        self._among = among
        first, *self._more = (body,) if isinstance(body, bytes) else (b"", *body)
        self._message = f"{head}Host: engine\r\nConnection: close\r\n\r\n".encode() + first
        self._response: EngineResponse | None = None

    async def __aenter__(self) -> EngineResponse:
        self._response = response = EngineResponse(await connected(self._path))
        self._among.add(response)
        try:
            await response.send(self._message, self._more)
            await response.head()
        except BaseException:
            self._leave(response)
            raise
        return response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._response is not None  # entered
        self._leave(self._response)

    def _leave(self, response: EngineResponse) -> None:
        self._among.discard(response)
        response.abort()


def _tell(first: Callable[[bytes], None], second: Callable[[bytes], None], piece: bytes) -> None:
    first(piece)
    second(piece)


def _size(body: Payload) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


class EngineResponse:
    """An answer; its status and headers are there once `head` has returned, the body is on its way."""

    def __init__(self, connection: socket.socket) -> None:
        self.status = 0
        self.content_type = ""  # without parameters
        self.full_content_type = b""
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size = 0
        self._bare = 0  # bytes that came without any of the body since some of it did
        self._has_body = False  # what came last has some
        self._has_head = False
        self._complete = False
        self._is_framed = False  # its head says where it ends; else it ends with the connection
        self._listening = False
        self._broken: Exception | None = None  # why there is no more, for whoever reads next
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Callable[[bytes], bool] | None = None
        self._full = False  # the sink wants no more for now
        self._listener: Callable[[bytes], None] | None = None

    # what the caller uses

    def heard_by(self, listener: Callable[[bytes], None]) -> EngineResponse:
        """Have somebody else hear every piece of the body before whoever reads it."""
        before = self._listener
        self._listener = listener if before is None else partial(_tell, before, listener)
        return self

    @property
    def ends_with_connection(self) -> bool:
        """True if the head does not say where the body ends: the connection's end tells it, or that the engine died."""
        return not self._is_framed

    @property
    def is_over(self) -> bool:
        """True if all of the body has come and was taken."""
        return self._complete and not self._parts

    async def read_some(self) -> bytes:
        """Return all that has arrived since the last time, after waiting for something; empty at the end.

        Raises EngineUnreachable where the engine breaks off.
        """
        while not self._parts:
            if self._complete:
                return b""
            await self._more()
        return self._take()

    async def read(self, most: int = MOST_TOLD) -> bytes:
        """Return the whole rest of the body. Raise AnswerTooLarge where it has more than `most` bytes."""
        parts, size = list[bytes](), 0
        while part := await self.read_some():
            parts.append(part)
            size += len(part)
            if size > most:
                raise AnswerTooLarge(f"it has more than {most} bytes")
        return b"".join(parts)

    async def json(self) -> Any:
        """Return the whole body, parsed. Raise ValueError where it is not JSON, or larger than `MOST_TOLD`."""
        body = await self.read()
        return parse(body) if len(body) <= _AT_ONCE else await asyncio.to_thread(parse, body)

    async def json_object(self) -> dict[str, Any]:
        """Return the JSON object of the whole body; empty where the engine refused, or sent something else."""
        try:
            found = await self.json() if self.status == 200 else {}
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    async def pipe(self, sink: Callable[[bytes], bool]) -> bool:
        """Hand the body to `sink` piece by piece, at the moment at which each arrives.

        Returns True at the end of the body, False when `sink` did: it wants no more for now; call again to go on.
        Raises EngineUnreachable where the engine breaks off, and what `sink` raises.
        """
        self._sink, self._full = sink, False
        try:
            self._pour()
            while not (self._full or self._complete):
                await self._more()
        finally:
            self._sink = None
        if self._broken is not None:  # the sink's own error, on the last piece
            raise self._broken
        return not self._full

    # what the request uses

    async def send(self, message: bytes, more: Sequence[bytes | memoryview] = ()) -> None:
        """Send the request, in one or in pieces, and listen to the answer."""
        try:
            whole = memoryview(message)
            await self._send_in_turns(whole[self._sent_at_once(whole[:_TURN]) :])
            for piece in more:
                await self._send_in_turns(memoryview(piece))
        except OSError as error:  # it may have answered before it closed
            self._broken = EngineUnreachable(f"The engine does not take the request: {error}.")
            self._receive()
            return
        self._listen()

    async def _send_in_turns(self, piece: memoryview) -> None:
        """Send a piece, and let others on the loop be served meanwhile.

        One system call would go on for as long as the engine reads as fast as it writes: 60 ms for 100 MB.
        """
        for start in range(0, len(piece), _TURN):
            if start:
                await asyncio.sleep(0)
            await self._loop.sock_sendall(self._socket, piece[start : start + _TURN])

    def _sent_at_once(self, message: memoryview) -> int:
        try:
            return self._socket.send(message)
        except BlockingIOError:
            return 0

    async def head(self) -> None:
        """Wait until status and headers are there."""
        while not self._has_head:
            await self._more()

    def abort(self) -> None:
        """Close the connection; whoever reads gets EngineUnreachable."""
        self._deafen()
        self._socket.close()
        if not self._complete and self._broken is None:
            self._broken = EngineUnreachable("The connection to the engine was closed.")
        self._wake()

    # how it arrives

    def _listen(self) -> None:
        if not self._listening and self._broken is None and not self._complete:
            self._listening = True
            self._loop.add_reader(self._socket, self._receive)

    def _deafen(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._socket)

    def _receive(self) -> None:
        """Read and parse what has arrived; hold the engine back while nobody takes it."""
        try:
            data = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self._ended(f"The engine broke off the connection: {error}.")
            return
        if not data:
            self._hung_up()
            return
        try:
            self._parser.feed_data(data)
            self._check_frames(len(data))
            if self._has_head and self._parts and self._sink is not None:
                self._full = not self._sink(self._take())
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._broken = EngineUnreachable(f"The engine's answer is not HTTP: {error}.")
        except Exception as error:  # noqa: BLE001 - the sink's own: for who called `pipe`
            self._broken = error
        over = self._complete or self._full or self._broken is not None
        if over or self._size > _READ_BUFFER:
            self._deafen()
        if over or self._sink is None:  # nobody has to be woken for an event that was passed on
            self._wake()

    def _check_frames(self, size: int) -> None:
        """Count bytes that came without any of the body: of the head, of chunks' frames, of what follows the body."""
        if self._has_body:
            self._has_body, self._bare = False, 0
            return
        self._bare += size
        if self._bare > _LONGEST_HEAD and self._broken is None and not self._complete:
            what = "frames" if self._has_head else "a head"
            self._broken = EngineUnreachable(f"The engine's answer has {what} of more than {_LONGEST_HEAD} bytes.")

    def _pour(self) -> None:
        if self._parts and self._sink is not None:
            self._full = not self._sink(self._take())

    def _hung_up(self) -> None:
        """Take the end of the connection for the end of a body that has no other."""
        self._complete = self._complete or (self._has_head and not self._is_framed)
        self._ended("The engine closed the connection.")

    def _ended(self, why: str) -> None:
        self._deafen()
        if not self._complete and self._broken is None:
            self._broken = EngineUnreachable(why)
        self._wake()

    def _take(self) -> bytes:
        found = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._listener is not None:
            self._listener(found)
        return found

    async def _more(self) -> None:
        if self._broken is not None:
            raise self._broken
        self._listen()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the one header that matters, and whether one says where the body ends."""
        if name.lower() in _FRAMING:
            self._is_framed = True
        if name.lower() == b"content-type" and not self._has_head:
            self.full_content_type = value
            self.content_type = value.partition(b";")[0].strip().decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """Note that the head is there; one of an interim answer is passed over."""
        if self._complete:
            return
        self.status = self._parser.get_status_code()
        self._has_head = self.status in _STATUSES
        if not self._has_head and self.status not in _INTERIM:
            self._broken = EngineUnreachable(f"The engine's answer has the status {self.status}.")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, without the chunks' frames; what follows the answer is none of it."""
        if not self._complete:
            self._parts.append(body)
            self._size += len(body)
            self._has_body = True

    def on_message_complete(self) -> None:
        """Note that the answer is complete."""
        self._complete = self._has_head
