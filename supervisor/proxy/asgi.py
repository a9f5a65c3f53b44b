"""The small pieces of ASGI that the relay uses instead of a framework's request and response objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping

from starlette.types import Message, Receive, Scope, Send

from supervisor.core.stream.apis import OPENAI, Api
from supervisor.core.text.foreignjson import written
from supervisor.proxy.exchange import tell_of_leaving
from supervisor.system.requestid import current_id

JSON_HEADERS = [(b"content-type", b"application/json")]
_STREAM_HEADERS = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
SSE_HEADERS = [(b"content-type", b"text/event-stream"), *_STREAM_HEADERS]

AS_HEAD = "supervisor.head"
"""Stands in the scope of a GET that the client sent as HEAD: it must not change anything."""

_WRITE_BUFFER = 1 << 16  # bytes that may wait for a slow client before the engine is held back


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


async def while_connected(scope: Scope, receive: Receive, work: Coroutine[object, object, None]) -> None:
    """Run `work` to its end; cancel it as soon as the client goes away. Its errors are raised here."""
    worker = asyncio.current_task()
    assert worker is not None  # a coroutine runs in a task
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True
        worker.cancel()

    watching = None if tell_of_leaving(scope, leave) else asyncio.ensure_future(_received_all(receive, leave))
    try:
        await work
    except asyncio.CancelledError:
        if gone and worker.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        if watching is None:
            tell_of_leaving(scope, None)
        else:
            watching.cancel()


async def _received_all(receive: Receive, leave: Callable[[], None]) -> None:
    """Take what comes and is of no use, until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()


class Responder:
    """An HTTP response, sent piece by piece.

    Args:
        send: ASGI's.
        transport: of the client's connection, where the server shows it (see `proxy/exchange.py`).
        api: in whose form errors are said.

    Attributes:
        started: the status line is out.
        said: something of the answer is, more than the head of a stream and comments.
        ended: nothing more can be sent.
        refused: the status and the code of an engine's error that was sent; 200 where a stream had begun.
    """

    def __init__(self, send: Send, transport: asyncio.Transport | None = None, api: Api = OPENAI) -> None:
        self._api = api
        self._send = send
        self._transport = transport
        self.started = False
        self.said = False
        self.ended = False
        self.refused: tuple[int, str] | None = None

    def write_now(self, data: bytes) -> bool:
        """Send a piece of a started stream at once; return False if `write` has to wait instead."""
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() > _WRITE_BUFFER:
            return False
        self.said = True
        if not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def heard_by(self, listener: Callable[[Message], None]) -> None:
        """Have a listener told of all that is sent from now on; all of it goes the ordinary way then."""
        send, self._transport = self._send, None

        async def tell(message: Message) -> None:
            listener(message)
            await send(message)

        self._send = tell

    async def start(self, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Send the status line and headers, those of a stream by default; once."""
        if not self.started:
            self.started = True
            if headers is None:
                headers = [(b"content-type", self._api.media_type), *_STREAM_HEADERS]
            await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def comment(self, text: str) -> None:
        """Send a line that is no part of the answer, in the place of a stream's events."""
        await self.start()
        await self._write(self._api.comment(text))

    async def write(self, data: bytes) -> None:
        """Send a piece of a stream's body, preceded by the head."""
        self.said = True
        await self.start()
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        self.said = self.said or bool(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        self.ended = True

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a JSON response in one go, with further `headers`; where a stream has started, as its end."""
        if self.started:
            self.said = self.ended = True
            await self.end(self._event(status, body))
            return
        if status >= 400 and self._api is not OPENAI:
            body = written(self._api.envelope(json.loads(body), current_id()))
        further = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self.said = self.ended = True  # whatever becomes of it, nothing can be added
        length = (b"content-length", str(len(body)).encode())
        await self.start(self._api.status(status), [*JSON_HEADERS, *further, length])
        await self.end(body)

    def _event(self, status: int, body: bytes) -> bytes:
        if status >= 400:
            return self._api.stream_error(json.loads(body)["error"])
        return self._api.event(body)
