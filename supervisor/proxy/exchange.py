"""Receive one request and send its response, as ASGI has it, on a connection of `proxy/server.py`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Scope

from supervisor.core.requests.identity import naming
from supervisor.system.requestid import answering

_log = structlog.get_logger()

_EXTENSION: Final = "supervisor.relay"
_MOST_HELD: Final = 1 << 16  # bytes of a body that nobody has taken, before the client is kept from sending
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # would end a header, or be shown as what it is not
_NO_BODY: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"

Header = tuple[bytes, bytes]


class Flow:
    """The two directions of a connection, each of which may be held back. `was_paused`: a client was, since then."""

    __slots__ = ("_transport", "_writable", "read_paused", "was_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._writable: asyncio.Event | None = None  # there while the client does not read
        self.read_paused = False
        self.was_paused = False

    @property
    def write_paused(self) -> bool:
        """True while the client does not take what is written."""
        return self._writable is not None

    async def drain(self) -> None:
        """Wait until the client takes what is written."""
        if self._writable is not None:
            await self._writable.wait()

    def pause_reading(self) -> None:
        """Read no more of what the client sends."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()
        self.was_paused = True

    def resume_reading(self) -> None:
        """Read again."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self._writable = self._writable or asyncio.Event()

    def resume_writing(self) -> None:
        """Note that the client reads again, or is gone."""
        if self._writable is not None:
            self._writable.set()
            self._writable = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The facts of a request that its response depends on.

    Attributes:
        name: its id. keep_alive: the connection stays for another one. expects: to be told to send the body.
    """

    name: str
    method: str
    path: str
    keep_alive: bool
    expects: bool


class Exchange:
    """One request and its response.

    Args:
        flow: of the connection, which `transport` is.
        headers: of every response.
        on_response: called once all of the response is given to the transport.

    Attributes:
        body: what has come of it and was not taken yet; `more_body`: there is more to come.
        disconnected: the client is gone.
        message_event: set when there is something to receive.
    """

    def __init__(
        self,
        asked: Asked,
        transport: asyncio.Transport,
        flow: Flow,
        headers: Sequence[Header],
        on_response: Callable[[], None],
    ) -> None:
        self._asked = asked
        self._transport = transport
        self._flow = flow
        self._headers = headers
        self.on_response = on_response
        self.keep_alive = asked.keep_alive
        self.waiting_for_100_continue = asked.expects
        self.message_event = asyncio.Event()
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self._left: int | None = None  # bytes of the body that the response has yet to send; None: chunks
        self._on_leaving: Callable[[], None] | None = None

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Have `app` answer. What it raises is logged, and the client is told if it can be."""
        request = answering(self._asked.name)
        scope["extensions"] = {_EXTENSION: {"transport": self._transport, "leaving": self._tell_of_leaving}}
        try:
            await app(scope, self.receive, self.send)
            if not (self.response_complete or self.disconnected):
                raise RuntimeError("the application has returned before its response was complete")
        except BaseException as error:  # noqa: BLE001 - also where the server ends: the connection must not stay open
            _log.error("request_failed", exc_info=error)
            await self._fail()
        finally:
            request.over()
            self.on_response, self._on_leaving = _nothing, None  # they lead back here

    # -- the request

    def take(self, body: bytes) -> None:
        """Take a piece of the body."""
        self.body += body
        if len(self.body) > _MOST_HELD:
            self._flow.pause_reading()
        self.message_event.set()

    def complete(self) -> None:
        """Note that the body is complete."""
        self.more_body = False
        self.message_event.set()

    def disconnect(self) -> None:
        """Note that the client is gone, and tell whoever works for it."""
        if self.response_complete:
            return
        self.disconnected = True
        self.message_event.set()
        if self._on_leaving is not None:
            self._on_leaving()

    def _tell_of_leaving(self, call: Callable[[], None] | None) -> bool:
        """Have `call` called when the client leaves; None: nothing any more.

        Returns False, and does nothing, where something is left to be received, or the client is gone already.
        """
        if call is not None and (self.more_body or self.body or self.disconnected):
            return False
        self._on_leaving = call
        self._flow.resume_reading()  # else nobody would notice
        return True

    async def receive(self) -> Message:
        """Return what has come, after waiting for something."""
        if self.waiting_for_100_continue and not self._transport.is_closing():
            self._transport.write(_GO_ON)
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    # -- the response

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response, once the client has taken most of those before."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        kind, expected = message["type"], "body" if self.response_started else "start"
        if self.response_complete or kind != f"http.response.{expected}":
            raise RuntimeError(f"{kind} is not what a response goes on with")
        if self.response_started:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._send_head(message["status"], message.get("headers", ()))

    def _send_head(self, status: int, headers: Iterable[Header]) -> None:
        lines, has_length = [_status_line(status)], status in _NO_BODY
        own = naming(self._asked.name, self._asked.path)
        for name, value in (*self._headers, *own, *headers):
            if _CONTROL.search(value):
                raise RuntimeError(f"the header {name!r} has a control character")
            if name == b"content-length":
                self._left, has_length = int(value), True
            elif name == b"connection":
                self.keep_alive = self.keep_alive and b"close" not in value.lower()
                continue
            lines.append(b"%b: %b" % (name, value))
        if not self.keep_alive:
            lines.append(b"connection: close")
        if not has_length and self._asked.method != "HEAD":
            lines.append(b"transfer-encoding: chunked")
        elif self._left is None or self._asked.method == "HEAD":
            self._left = 0
        self.response_started = True
        self.waiting_for_100_continue = False
        self._transport.write(b"\r\n".join([*lines, b"", b""]))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._asked.method == "HEAD":
            pass
        elif self._left is None:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._transport.write(chunk if more else chunk + _LAST_CHUNK)
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body is not as long as its Content-Length")
            self._transport.write(body)
        if not more:
            self._finish()

    def _finish(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self._transport.close()
        self.on_response()

    async def _fail(self) -> None:
        if self.response_complete or self.disconnected:
            return
        if self.response_started:
            self._transport.close()
            return
        self.keep_alive = False
        await self.send({"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]})
        await self.send({"type": "http.response.body"})


def _nothing() -> None:
    """Nobody is told."""


@lru_cache(maxsize=128)
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}".encode()


def transport_of(scope: Scope) -> asyncio.Transport | None:
    """Return the client's connection; None under another server."""
    found: asyncio.Transport | None = scope.get("extensions", {}).get(_EXTENSION, {}).get("transport")
    return found


def tell_of_leaving(scope: Scope, call: Callable[[], None] | None) -> bool:
    """Have `call` called when the client leaves, in place of the last one; None: nothing any more.

    Returns False where only `receive` tells: under another server, before the body is received, or after it is gone.
    """
    found = scope.get("extensions", {}).get(_EXTENSION, {}).get("leaving")
    return found is not None and bool(found(call))
