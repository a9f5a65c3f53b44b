"""The ASGI layer around the app that enforces `AccessRules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.errors import error_response
from supervisor.core.requests.access import RulesByAddress, check, is_preflight
from supervisor.core.requests.admission import RawHeaders
from supervisor.core.requests.keys import Key
from supervisor.core.routes import is_relayed
from supervisor.errors import RequestError, SupervisorError, TakingOver
from supervisor.proxy.metered import KEY

Admit: TypeAlias = Callable[[frozenset[bytes], tuple[str, str], RawHeaders], Key | None]
"""Lets a request in by its key, or raises why not: digests of the configuration's keys, method and path, headers."""

_CORS_METHODS = b"GET, POST, DELETE, OPTIONS"
_CORS_SHOWN = b"x-request-id, request-id, retry-after, x-should-retry"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_POLICY_VIOLATION = 1008  # a websocket's close code


class Guard:
    """ASGI middleware that enforces `RulesByAddress` and answers CORS preflights of allowed origins.

    Nothing but HTTP is let through. `rules`: those in force now, asked for every request. `admit`: by the key.
    """

    def __init__(self, app: ASGIApp, rules: Callable[[], RulesByAddress], admit: Admit) -> None:
        self._app = app
        self._rules = rules
        self._admit = admit
        self._leaving = False

    @property
    def inside(self) -> ASGIApp:
        """Application behind the guard, for those who have proven otherwise who they are."""
        return self._app

    def leave(self) -> None:
        """From now on refuse what would change something: another image of the daemon is taking over."""
        self._leaving = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through or answer it."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        rules = self._rules().at(scope.get("server")).at(scope["path"])
        refusal: SupervisorError | None = check(rules, headers)
        if "origin" in headers and refusal is None:
            if is_preflight(scope["method"], headers):
                await _answer_preflight(send, headers)
                return
            send = _with_cors(send, headers)
        if refusal is None:
            try:
                key = self._admit(rules.digests, (scope["method"], scope["path"]), scope["headers"])
                scope = scope if key is None else {**scope, KEY: key}
            except RequestError as error:
                refusal = error
        if refusal is None and self._leaving and _changes(scope):
            refusal = TakingOver("A new image of the daemon is taking over. Repeat the request in a moment.")
        app = self._app if refusal is None else error_response(refusal, scope["path"])
        await app(scope, receive, send if is_relayed(scope["path"]) else self._parting(send))

    def _parting(self, send: Send) -> Send:
        """Return `send`, which ends the connection with the answer where this image leaves: the next request on it
        is for the next image, and might come here before the connection is passed on.
        """

        async def send_and_part(message: Message) -> None:
            if self._leaving and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        return send_and_part


def _changes(scope: Scope) -> bool:
    """Return whether it may change something; what is relayed changes nothing here."""
    return scope["method"] not in _READING and not is_relayed(scope["path"])


def _cors(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", headers["origin"].encode("latin-1")),
        (b"access-control-expose-headers", _CORS_SHOWN),
        (b"vary", b"Origin"),
    ]


async def _answer_preflight(send: Send, headers: Mapping[str, str]) -> None:
    allowed = [
        *_cors(headers),
        (b"access-control-allow-methods", _CORS_METHODS),
        (b"access-control-allow-headers", headers.get("access-control-request-headers", "").encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": allowed})
    await send({"type": "http.response.body", "body": b""})


def _with_cors(send: Send, headers: Mapping[str, str]) -> Send:
    """`send` that lets an allowed page read the answer."""

    async def send_with_cors(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_cors(headers)]
        await send(message)

    return send_with_cors
