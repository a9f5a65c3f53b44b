"""The HTTP server's protocol, which shows the relay the client's connection.

ASGI sends a piece of a body by awaiting a coroutine, in a task that must be woken first. For a stream's events the
relay writes to the transport itself, in the moment in which they arrive from the engine; head and end of the response
go the ordinary way.
"""

from __future__ import annotations

import asyncio

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_EXTENSION = "supervisor.relay"
_TRANSPORT = "transport"


class RelayingProtocol(HttpToolsProtocol):
    """uvicorn's own, and the transport in every request's scope."""

    def on_headers_complete(self) -> None:
        """The request's task is made here; it runs later."""
        super().on_headers_complete()
        self.scope["extensions"] = {_EXTENSION: {_TRANSPORT: self.transport}}


def transport_of(scope: Scope) -> asyncio.Transport | None:
    """The client's connection; None under another server."""
    found: asyncio.Transport | None = scope.get("extensions", {}).get(_EXTENSION, {}).get(_TRANSPORT)
    return found
