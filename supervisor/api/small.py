"""A limit of its own for the bodies of whatever is not relayed: no call of management has much to say."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.errors import error_response
from supervisor.core.requests.outliner import OutlineLimits, Outliner
from supervisor.errors import SupervisorError
from supervisor.proxy.asgi import ClientGone
from supervisor.proxy.bodies import Bodies, declared_size, read_any

MOST = 1 << 20
"""Bytes of one body."""

_TOTAL = 32 << 20  # of all together
_ANY_SHAPE = 1 << 13  # bytes that are parsed in no time, whatever they are
_SHAPE = OutlineLimits(marks=1 << 13, scalars=1 << 15)  # every key that is not known costs a fault of its own


class SmallBodies:
    """Reads the body before the application does, and answers for it where there is too much."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._bodies = Bodies(MOST, _TOTAL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        with self._bodies.room() as room:
            try:
                found, _ = await read_any(receive, room, declared_size(scope), as_json=False)
                body = found if isinstance(found, bytes) else b"".join(found)
                _check_shape(body)
            except ClientGone:
                return
            except SupervisorError as error:
                await error_response(error, scope["path"])(scope, receive, send)
                return
            await self._app(scope, _again(body, receive), send)


def _has_body(scope: Scope) -> bool:
    """Whether there is one that anybody reads: that of a GET, for which no key may be needed, is not waited for."""
    framing = {b"content-length", b"transfer-encoding"}
    return scope["method"] != "GET" and any(name in framing for name, _ in scope["headers"])


def _check_shape(body: bytes) -> None:
    """Raise where parsing would take long: InvalidRequest, PayloadTooLarge."""
    outliner, at = Outliner(_SHAPE), 0
    while len(body) > _ANY_SHAPE and at < len(body):
        at = outliner.feed(body, at)


def _again(body: bytes, receive: Receive) -> Receive:
    """The same to be received once more, and what comes after it."""
    held: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return held.pop() if held else await receive()

    return received
