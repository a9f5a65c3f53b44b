"""Answer HTTP/1.0: what has no length ends with the connection, as such a client knows no chunks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.core.requests.identity import naming
from supervisor.system.requestid import current_id

OLD: Final = "1.0"
"""The version of HTTP without chunks."""

_LENGTH: Final = b"content-length"


class Old(Protocol):
    """The connection of a client that speaks HTTP/1.0."""

    async def write(self, data: bytes) -> None:
        """Send bytes as they are, once the client has taken most of those before."""

    def end(self) -> None:
        """Close it once all is sent."""


def for_old_clients(app: ASGIApp, connection: Old) -> ASGIApp:
    """Return `app` for a request of HTTP/1.0.

    The server's own way to send knows a length or chunks. An answer that has neither is written to the connection.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await app(scope, receive, send)
            return
        name = current_id()
        names = [] if name is None else naming(name, scope["path"])
        answer = _Answer(send, connection, names)
        await app({**scope, "extensions": {}}, receive, answer.send)
        if answer.open_ended:  # the server must not take it for none: it hears of the end first
            connection.end()
            while (await receive())["type"] != "http.disconnect":
                pass

    return serve


class _Answer:
    """An answer. names: headers that name its request. `open_ended`: written here, it ends with the connection."""

    def __init__(self, send: Send, connection: Old, names: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._names = names
        self._connection = connection
        self.open_ended = False

    async def send(self, message: Message) -> None:
        """Send a part."""
        if message["type"] == "http.response.start" and _has_no_length(message):
            self.open_ended = True
            await self._connection.write(_head(message, self._names))
        elif self.open_ended:
            await self._connection.write(message.get("body", b""))
        else:
            await self._send(message)


def _has_no_length(start: Message) -> bool:
    bodiless = start["status"] in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
    return not bodiless and all(name.lower() != _LENGTH for name, _ in start["headers"])


def _head(start: Message, names: list[tuple[bytes, bytes]]) -> bytes:
    status = HTTPStatus(start["status"])
    lines = [b"%b: %b" % (name, value) for name, value in (*names, *start["headers"])]
    first = f"HTTP/1.1 {status} {status.phrase}".encode()
    return b"\r\n".join([first, *lines, b"connection: close", b"", b""])
