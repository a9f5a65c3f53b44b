"""Relayed requests: JSON in → lease → engine → bytes back. The endpoints are plain ASGI applications.

A generation is always asked of the engine as a stream with progress, whatever the client wanted: only then does the
engine notice within milliseconds that nobody listens any more (docs/relay.md). A client that wanted no stream gets the
stream folded into one object. A request of which the client has not had a byte is tried once more on a fresh engine
when its engine dies by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.core.affinity import affinity_of
from supervisor.core.registry import Registry
from supervisor.core.relay import Relay
from supervisor.core.upstream import UpstreamPlan, plan_upstream, set_fields
from supervisor.engine_client import EngineResponse, EngineUnreachable
from supervisor.errors import EngineLost, EngineStreamInvalid, InvalidRequest, SupervisorError
from supervisor.inflight import Inflight, InflightRequest
from supervisor.pool import Lease, Pool
from supervisor.proxy.answers import StreamBroken, fold, pass_whole, stream_through
from supervisor.proxy.asgi import ClientGone, Responder, parse_object, read_body, while_connected
from supervisor.proxy.server import transport_of

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")

_SETTLE_SECONDS = 5.0  # how long a broken connection may take to turn out as the engine's end

RenderError = Callable[[SupervisorError], tuple[int, bytes, Mapping[str, str]]]


@dataclass(frozen=True)
class Relaying:
    """What all relayed paths share.

    max_body: bytes. render_error: status, body and headers for an error, in the form of the paths' API.
    """

    pool: Pool
    registry: Registry
    inflight: Inflight
    max_body: int
    render_error: RenderError


def relay_endpoints(relaying: Relaying) -> Mapping[str, ASGIApp]:
    """The ASGI endpoint of every relayed path."""
    return {path: RelayEndpoint(path, relaying) for path in PATHS}


@dataclass(frozen=True, slots=True)
class _Asking:
    """One request on its way to an engine."""

    request: InflightRequest
    acquire: Callable[[], Awaitable[Lease]]
    plan: UpstreamPlan
    payload: bytes


@dataclass(frozen=True)
class RelayEndpoint:
    """One path whose requests go to the engine of the model that the body names."""

    path: str
    relaying: Relaying

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        responder = Responder(send, transport_of(scope))
        try:
            body = await read_body(receive, self.relaying.max_body)
            await while_connected(receive, self._answer(body, responder))
        except ClientGone:
            return
        except SupervisorError as error:
            await responder.whole(*self.relaying.render_error(error))

    async def _answer(self, body: bytes, responder: Responder) -> None:
        asked: Mapping[str, object] = parse_object(body)
        entry = self.relaying.registry.find(_model_name(asked))
        if entry.filters:
            body, asked = entry.filters.apply(body, asked)
        plan = plan_upstream(self.path, asked)
        payload = set_fields(body, plan.changes)
        acquire = partial(self.relaying.pool.acquire, entry.id, affinity_of(asked))
        inflight = self.relaying.inflight
        request = inflight.enter(entry.id, self.path, stream=asked.get("stream") is True)
        relay = Relay(drop_progress=plan.drop_progress)
        asking = _Asking(request, acquire, plan, payload)
        try:
            await self._retry(asking, relay, responder)
        except asyncio.CancelledError:
            error = request.was_cancelled()
            if error is None:
                raise
            if not responder.started:
                raise error from None
            if relay.started:
                await self._end_stream(relay, responder, error)
        finally:
            inflight.leave(request)

    async def _retry(self, asking: _Asking, relay: Relay, responder: Responder) -> None:
        try:
            await self._try(asking, relay, responder)
        except _TryAgain:
            await self._try(asking, relay, responder, again=False)

    async def _try(self, asking: _Asking, relay: Relay, responder: Responder, *, again: bool = True) -> None:
        """Answer from one engine; raises _TryAgain where it died before the client had a byte."""
        asking.request.engine = None
        lease = await asking.acquire()
        asking.request.engine = lease.number
        try:
            async with lease.client.post(self.path, asking.payload) as upstream:
                await _answer(asking.plan, upstream, relay, responder)
        except (EngineUnreachable, StreamBroken) as error:
            gone = await lease.engine_gone(_SETTLE_SECONDS)
            if gone and again and not lease.engine_stopped and not responder.started:
                raise _TryAgain from error
            lost = _lost(lease, gone=gone)
            if not responder.started:
                raise lost from error
            await self._end_stream(relay, responder, lost)
        except EngineStreamInvalid as error:
            if not responder.started:
                raise
            await self._end_stream(relay, responder, error)
        finally:
            lease.release()

    async def _end_stream(self, relay: Relay, responder: Responder, error: SupervisorError) -> None:
        _, envelope, _ = self.relaying.render_error(error)
        await responder.end(relay.ending(json.loads(envelope)["error"]))


async def _answer(plan: UpstreamPlan, upstream: EngineResponse, relay: Relay, responder: Responder) -> None:
    folding = plan.new_fold()
    if upstream.status != 200 or upstream.content_type != "text/event-stream":
        await pass_whole(upstream, responder)
    elif folding is not None:
        await fold(upstream, folding, responder)
    else:
        await stream_through(upstream, relay, responder)


class _TryAgain(Exception):
    """The engine died and the client has seen nothing yet."""


def _lost(lease: Lease, *, gone: bool) -> EngineLost:
    model = lease.model
    if gone and lease.engine_stopped:
        return EngineLost(
            f"The engine of '{model}' was stopped while it was answering: the model was unloaded or the daemon ends. "
            "Repeat the request; that loads it again."
        )
    how = f"ended ({lease.engine.exit.result()})" if gone else "closed the connection"
    return EngineLost(
        f"The engine of '{model}' {how} while it was answering. Repeat the request; "
        f"`supervisor logs {model}` may tell why.",
        log_lines=lease.engine.tail(5) if gone else (),
    )


def _model_name(body: Mapping[str, object]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("Name a model in `model`; GET /v1/models lists them.", param="model")
    return model
