"""The ASGI layer around the app that enforces `AccessRules`."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.errors import error_response
from supervisor.auth import AccessRules, check

_CORS_METHODS = b"GET, POST, DELETE, OPTIONS"


class Guard:
    """ASGI middleware that enforces `AccessRules` and answers CORS preflights of allowed origins.

    `rules` may be replaced; requests from then on are measured by the new ones.
    """

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self.rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = check(self.rules, scope["method"], scope["path"], headers)
        if refusal is not None:
            await error_response(refusal)(scope, receive, send)
        elif "origin" in headers:
            await self._with_cors(scope, receive, send, headers)
        else:
            await self._app(scope, receive, send)

    async def _with_cors(self, scope: Scope, receive: Receive, send: Send, headers: Mapping[str, str]) -> None:
        cors = [(b"access-control-allow-origin", headers["origin"].encode("latin-1")), (b"vary", b"Origin")]
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            asked = headers.get("access-control-request-headers", "").encode("latin-1")
            cors += [
                (b"access-control-allow-methods", _CORS_METHODS),
                (b"access-control-allow-headers", asked),
                (b"access-control-max-age", b"600"),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": cors})
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *cors]
            await send(message)

        await self._app(scope, receive, send_with_cors)
