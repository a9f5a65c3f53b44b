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
from supervisor.core.apis import Api, api_of
from supervisor.core.recovery.raw import COMPLETION_PATH
from supervisor.core.recovery.stream import ParserFailed
from supervisor.core.registry import Registry
from supervisor.core.relay import Relay
from supervisor.core.upstream import UpstreamPlan, plan_upstream, set_fields
from supervisor.engine_client import EngineClient, EngineResponse, EngineUnreachable
from supervisor.errors import EngineLost, EngineStreamInvalid, InvalidRequest, SupervisorError
from supervisor.inflight import Inflight, InflightRequest
from supervisor.pool import Lease, Pool
from supervisor.proxy.answers import Filter, StreamBroken, fold, pass_whole, stream_through
from supervisor.proxy.asgi import ClientGone, Responder, parse_object, read_body, while_connected
from supervisor.proxy.server import transport_of
from supervisor.proxy.toolcalls import ToolCalls, Watch

CHAT = "/v1/chat/completions"
PATHS = (
    *(CHAT, "/v1/completions", "/v1/embeddings"),
    *("/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
)

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
    tool_calls: ToolCalls


def relay_endpoints(relaying: Relaying) -> Mapping[str, ASGIApp]:
    """The ASGI endpoint of every relayed path."""
    return {path: RelayEndpoint(path, relaying) for path in PATHS}


@dataclass(frozen=True)
class RelayEndpoint:
    """One path whose requests go to the engine of the model that the body names."""

    path: str
    relaying: Relaying

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        responder = Responder(send, transport_of(scope), api_of(self.path))
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
        watch = None
        if self.path == CHAT:
            body, watch = self.relaying.tool_calls.prepare(body, asked, entry)
        plan = plan_upstream(self.path, asked)
        acquire = partial(self.relaying.pool.acquire, entry.id, affinity_of(asked))
        inflight = self.relaying.inflight
        request = inflight.enter(entry.id, self.path, stream=asked.get("stream") is True)
        job = _Job(request, acquire, plan, set_fields(body, plan.changes), watch, api_of(self.path))
        try:
            await self._tries(job, responder)
        except asyncio.CancelledError:
            error = request.was_cancelled()
            if error is None:
                raise
            if not responder.started:
                raise error from None
            if not responder.ended:
                await self._end_stream(job, responder, error)
        finally:
            inflight.leave(request)
            if watch is not None:
                watch.settle()

    async def _tries(self, job: _Job, responder: Responder) -> None:
        """Answer; once more where an engine died, once more without the engine's parser where that failed."""
        again = True
        while True:
            try:
                return await self._try(job, responder, again=again)
            except _TryAgain:
                again = False
            except ParserFailed as failed:
                assert job.watch is not None  # who else looks into answers
                job.watch.turn_raw(failed)

    async def _try(self, job: _Job, responder: Responder, *, again: bool) -> None:
        """Answer from one engine; raises _TryAgain where it died before the client had a byte."""
        job.request.engine = None
        lease = await job.acquire()
        job.request.engine = lease.number
        try:
            path, payload = await job.question(self.path, lease.client)
            job.filtered = job.new_filter()
            async with lease.client.post(path, payload) as upstream:
                await _answer(job, upstream, job.filtered, responder)
        except (EngineUnreachable, StreamBroken) as error:
            gone = await lease.engine_gone(_SETTLE_SECONDS)
            if gone and again and not lease.engine_stopped and not responder.started:
                raise _TryAgain from error
            lost = _lost(lease, gone=gone)
            if not responder.started:
                raise lost from error
            await self._end_stream(job, responder, lost)
        except EngineStreamInvalid as error:
            if not responder.started:
                raise
            await self._end_stream(job, responder, error)
        finally:
            lease.release()

    async def _end_stream(self, job: _Job, responder: Responder, error: SupervisorError) -> None:
        assert job.filtered is not None  # what was sent came through it
        _, envelope, _ = self.relaying.render_error(error)
        await responder.end(job.filtered.ending(json.loads(envelope)["error"]))


async def _answer(job: _Job, upstream: EngineResponse, filtered: Filter, responder: Responder) -> None:
    folding = job.plan.new_fold()
    if upstream.status != 200 or upstream.content_type != "text/event-stream":
        await pass_whole(upstream, responder, job.watch.answer if job.watch is not None else None)
    elif folding is not None:
        await fold(upstream, folding, responder, filtered if job.watch is not None else None)
    else:
        await stream_through(upstream, filtered, responder)


@dataclass(slots=True)
class _Job:
    """One request on its way to an engine.

    watch: over the tool calls in its answer, where there may be any. filtered: the way of the answer's bytes in the
    present try.
    """

    request: InflightRequest
    acquire: Callable[[], Awaitable[Lease]]
    plan: UpstreamPlan
    payload: bytes
    watch: Watch | None
    api: Api
    filtered: Filter | None = None

    async def question(self, path: str, client: EngineClient) -> tuple[str, bytes]:
        """Path and body of the request to the engine."""
        if self.watch is None:
            return path, self.payload
        body = await self.watch.emulate(client)
        raw = await self.watch.raw_payload(client, body) if self.watch.raw else None
        if raw is not None:
            return COMPLETION_PATH, raw
        return path, self.payload if body is None else json.dumps({**body, **self.plan.changes}).encode()

    def new_filter(self) -> Filter:
        """The way of the answer's bytes; without a watch they are not looked into."""
        relay = Relay(drop_progress=self.plan.drop_progress, api=self.api)
        return relay if self.watch is None else self.watch.stream(relay)


class _TryAgain(Exception):
    """The engine died and the client has seen nothing yet."""


def _lost(lease: Lease, *, gone: bool) -> EngineLost:
    model = lease.model
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
