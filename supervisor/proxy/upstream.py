"""`/upstream/MODEL/…`: whatever an engine answers, of whatever path, as it is.

The model's id may contain slashes: the shortest beginning of the path that names a model counts. Only the content type
goes along in either direction, no other header. What only looks at an engine neither wakes nor keeps it; nor does a
browser's GET of which nobody knows which page it comes from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.core.apis import api_of
from supervisor.core.browsers import from_unknown_page
from supervisor.engine_client import EngineClient, EngineUnreachable
from supervisor.errors import EngineLost, ModelNotFound, ModelNotLoaded, SupervisorError
from supervisor.inflight import InflightRequest
from supervisor.proxy.asgi import ClientGone, Responder, read_body, while_connected
from supervisor.proxy.relay import Relaying
from supervisor.proxy.server import transport_of

PREFIX = "/upstream/"

_LOOKS = frozenset({"/health", "/v1/health", "/metrics", "/slots", "/props", "/models", "/v1/models"})


def upstream_endpoint(relaying: Relaying) -> ASGIApp:
    """The ASGI endpoint of everything below PREFIX."""
    return UpstreamEndpoint(relaying)


@dataclass(frozen=True)
class _Call:
    """One request as the engine gets it. `target`: path and query, percent-encoded as the client sent it."""

    method: str
    target: str
    content_type: str
    body: bytes


@dataclass(frozen=True)
class UpstreamEndpoint:
    """Passes requests on to the engine of the model that the path names."""

    relaying: Relaying

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        responder = Responder(send, transport_of(scope), api_of(scope["path"]))
        try:
            body = await read_body(receive, self.relaying.max_body)
            await while_connected(receive, self._answer(scope, body, responder))
        except ClientGone:
            return
        except SupervisorError as error:
            await responder.whole(*self.relaying.render_error(error))

    async def _answer(self, scope: Scope, body: bytes, responder: Responder) -> None:
        model, target = self._split(scope)
        query = scope.get("query_string", b"").decode("latin-1")
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"application/json")
        call = _Call(scope["method"], f"{target}?{query}" if query else target, kind.decode("latin-1"), body)
        if scope["method"] == "GET" and (target in _LOOKS or from_unknown_page(_headers(scope))):
            await self._look(model, call, responder)
            return
        request = self.relaying.inflight.enter(model, PREFIX + model + target, stream=False)
        try:
            await self._with_lease(request, call, responder)
        except asyncio.CancelledError:
            error = request.was_cancelled()
            if error is None:
                raise
            if not responder.started:
                raise error from None
        finally:
            self.relaying.inflight.leave(request)

    async def _look(self, model: str, call: _Call, responder: Responder) -> None:
        client = self.relaying.pool.ready_client(model)
        if client is not None:
            try:
                return await _pass_on(model, client, call, responder)
            except EngineLost:
                if self.relaying.pool.ready_client(model) is client:  # else it was told to end meanwhile
                    raise
        raise ModelNotLoaded(f"'{model}' is not loaded, and {call.target} does not load it.", param="model")

    async def _with_lease(self, request: InflightRequest, call: _Call, responder: Responder) -> None:
        lease = await self.relaying.pool.acquire(request.model)
        request.engine = lease.number
        try:
            await _pass_on(request.model, lease.client, call, responder)
        finally:
            lease.release()

    def _split(self, scope: Scope) -> tuple[str, str]:
        """Model and the rest of the path; raises ModelNotFound."""
        rest = scope["raw_path"].partition(b"?")[0].decode("latin-1").removeprefix(PREFIX)
        for name, target in _cuts(rest):
            try:
                return self.relaying.registry.find(unquote(name)).id, target or "/"
            except ModelNotFound:
                continue
        return self.relaying.registry.find(unquote(rest).strip("/")).id, "/"


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _cuts(path: str) -> Iterator[tuple[str, str]]:
    """Every way to cut the path before a slash, and the whole."""
    at = path.find("/")
    while at >= 0:
        yield path[:at], path[at:]
        at = path.find("/", at + 1)
    yield path, ""


async def _pass_on(model: str, client: EngineClient, call: _Call, responder: Responder) -> None:
    try:
        async with client.send(call.method, call.target, call.body, call.content_type) as upstream:
            headers = [(b"content-type", upstream.full_content_type)] if upstream.full_content_type else []
            await responder.start(upstream.status, headers)
            while piece := await upstream.read_some():
                await responder.write(piece)
            await responder.end()
    except EngineUnreachable as error:
        if responder.started:
            raise  # a body that breaks off is all that a client can be told: the connection closes
        raise EngineLost(f"The engine of '{model}' closed the connection. Repeat the request.") from error
