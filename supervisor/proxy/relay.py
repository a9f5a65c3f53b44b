"""Relay requests: JSON in → lease → engine → bytes back. The endpoints are plain ASGI applications.

A generation is always asked of the engine as a stream with progress, whatever the client wanted: only then does the
engine notice within milliseconds that nobody listens any more (docs/relay.md). A client that wanted no stream gets the
stream folded into one object. A request of which the client has not had a byte is tried once more on a fresh engine
when its engine dies by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.core.launch.extra import has_media_folder
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.params.fit import fit
from supervisor.core.params.settings import RequestSettings
from supervisor.core.recovery import AskAgain
from supervisor.core.requests.affinity import affinity_of
from supervisor.core.requests.keys import Key
from supervisor.core.routes import SERVED, Route, kind_of
from supervisor.core.stream.outgoing import OutgoingRequest, outgoing_request
from supervisor.core.text.members import set_fields, without
from supervisor.engines.client import EngineResponse, EngineUnreachable
from supervisor.engines.kinds import service_of
from supervisor.engines.service import Service
from supervisor.errors import EngineLost, EngineStreamInvalid, SupervisorError
from supervisor.pool.inflight import Inflight, InflightRequest
from supervisor.pool.lease import error_of
from supervisor.pool.pool import Lease, Pool, Wait
from supervisor.proxy.account import Account, Begins, Observer, ignored
from supervisor.proxy.answers import Filter, StreamBroken, fold, folded, pass_whole, stream_through
from supervisor.proxy.asgi import ClientGone, Responder, while_connected
from supervisor.proxy.bodies import Bodies, ClientJson, Room, declared_size, read_form, read_json
from supervisor.proxy.capturing import Capturing
from supervisor.proxy.exchange import transport_of
from supervisor.proxy.job import Job
from supervisor.proxy.media import Media, check_ending, check_sent
from supervisor.proxy.metered import check_spent, key_of, metered, told
from supervisor.proxy.naming import Naming
from supervisor.proxy.patience import Patience
from supervisor.proxy.plain import pass_as_it_is, sent_as_it_is
from supervisor.proxy.timelimit import Limit, limit_of
from supervisor.proxy.toolcalls import Prepared, ToolCalls
from supervisor.proxy.waiting import Waiting

_SETTLE_SECONDS = 5.0  # how long a broken connection may take to turn out as the engine's end

RenderError = Callable[[SupervisorError], tuple[int, bytes, Mapping[str, str]]]


@dataclass(frozen=True)
class Relaying:
    """The parts that all relayed paths share.

    render_error: status, body and headers for an error, in the form of the paths' API.
    observer: is told of every request when it has ended. begins: a trace of each; None: there are none.
    capturing: hears those whose prompts and answers are kept; None: nobody does.
    services: says how the engine of a model is asked.
    """

    pool: Pool
    registry: Registry
    inflight: Inflight
    bodies: Bodies
    render_error: RenderError
    tool_calls: ToolCalls
    waiting: Waiting
    naming: Naming
    media: Media = field(default_factory=Media)
    observer: Observer = field(default=ignored)
    services: Callable[[ModelEntry], Service] = field(default=service_of)
    begins: Begins | None = None
    capturing: Capturing | None = None

    def account(self, path: str, scope: Scope) -> Account:
        """Return the account of a request that arrives now, on a path of the table."""
        account = Account(self.observer, path, scope, key_of(scope))
        if self.begins is not None:
            account.traced(self.begins, scope)
        return account


def relay_endpoints(relaying: Relaying) -> Mapping[str, ASGIApp]:
    """Return the ASGI endpoint of every relayed path."""
    return {path: RelayEndpoint(route, relaying) for path, route in SERVED.items()}


@dataclass(frozen=True)
class RelayEndpoint:
    """A path whose requests go to the engine of the model that they mean."""

    route: Route
    relaying: Relaying

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        responder = Responder(send, transport_of(scope), self.route.api)
        account = self.relaying.account(self.route.path, scope)
        try:
            with account, self.relaying.bodies.room() as room:
                body = await self._read(scope, receive, room)
                await while_connected(scope, receive, self._answer(scope, body, room, (responder, account)))
        except ClientGone:
            return
        except SupervisorError as error:
            await responder.whole(*self.relaying.render_error(told(account.key, error)))

    async def _read(self, scope: Scope, receive: Receive, room: Room) -> ClientJson:
        if self.route.is_form:
            return await read_form(receive, room, scope)
        return await read_json(receive, room, declared_size(scope))

    async def _answer(self, scope: Scope, body: ClientJson, room: Room, ends: tuple[Responder, Account]) -> None:
        patience, (responder, account) = Patience.of(scope), ends
        key = account.key
        entry = await self.relaying.naming.wanted(body.fields.get("model"), scope.get("query_string", b""), key)
        account.model, account.stream = entry.id, body.fields.get("stream") is True
        service = self.relaying.services(entry)
        service.check(self.route.path, entry.id)
        if self.relaying.capturing is not None:
            await self.relaying.capturing.begin(scope, account, body, responder)
        with self.relaying.inflight.entered(entry.id, self.route.path, stream=account.stream) as request:
            ready = await _unless_cancelled(request, self._ready(request, (entry, service), body, room, key))
            acquire = partial(self.relaying.pool.acquire, entry.id, ready.affinity, self._wait(request, responder))
            if patience is not None:
                acquire = partial(patience.while_it_lasts, acquire)
            limit, prepared = limit_of(entry.requests, entry.id), ready.prepared
            job = Job(request, acquire, _plan(prepared, key), prepared, ready.body, self.route.api, account, limit)
            await self._cancellable(job, responder)

    async def _ready(
        self,
        request: InflightRequest,
        asked_of: tuple[ModelEntry, Service],
        body: ClientJson,
        room: Room,
        key: Key | None,
    ) -> _Ready:
        """Return the request with all that it names by an address, and as the engine gets it."""
        entry, service = asked_of
        if not self.route.is_form:
            with request.fetches():
                body = await self.relaying.media.put_in(body, room, files=has_media_folder(entry.options))
        prepared, asked = await body.work(partial(self._prepared, body, entry, service, key))
        several = entry.policy.replicas_max > 1
        return _Ready(body, prepared, await body.work(partial(affinity_of, asked, body.heads)) if several else None)

    async def _cancellable(self, job: Job, responder: Responder) -> None:
        """Answer, or report that the request was cancelled."""
        try:
            await self._tries(job, responder)
        except asyncio.CancelledError:
            error = job.request.was_cancelled()
            if error is None:
                raise
            if not responder.said:
                raise error from None
            if not responder.ended:
                await self._end_stream(job, responder, error)
        finally:
            job.account.calls = job.prepared.way.finish()
            if refused := responder.refused or job.refused:
                job.account.refused(*refused)

    def _prepared(
        self, body: ClientJson, entry: ModelEntry, service: Service, key: Key | None
    ) -> tuple[Prepared, Mapping[str, object]]:
        """Return the request for the engine, and the client's fields, as filters and other servers' names leave them.

        Raises InvalidRequest for a parameter that is out of bounds, MediaUrlRefused.
        """
        if entry.filters:
            text, asked = entry.filters.apply(body.text, body.fields)
            body = replace(body, text=text, fields=asked)
        if service.plain:
            prepared = sent_as_it_is(self.route, body, entry, service, counted=key is not None)
        else:
            body, prepared = self._in_its_own_way(body, entry)
        if not self.route.is_form:
            check_sent(body, prepared.body, prepared.asked, files=has_media_folder(entry.options))
        return prepared, body.fields

    def _in_its_own_way(self, body: ClientJson, entry: ModelEntry) -> tuple[ClientJson, Prepared]:
        """Return the request with the model's defaults, and as llama-server gets it."""
        if self.route.is_form:  # its fields are texts, whose form the engine judges
            body = _with(body, entry.requests.missing_in_form(body.fields))
        elif self.route.generates or self.route.prompts:
            body = _fitted(body, entry.requests)
        return body, self.relaying.tool_calls.prepare(self.route.path, body, entry)

    def _wait(self, request: InflightRequest, responder: Responder) -> Wait | None:
        """Return the way to wait for an engine, where the client can hear something meanwhile."""
        if not request.stream or not self.route.generates:
            return None
        return partial(self.relaying.waiting.wait, request=request, responder=responder)

    async def _tries(self, job: Job, responder: Responder) -> None:
        """Answer; once more where an engine died, and as often as the watch asks for it."""
        again = True
        while True:
            try:
                return await self._try(job, responder, again=again)
            except _TryAgain:
                again = False
                job.folding = None
            except AskAgain as why:
                await _keep(job, why, responder)

    async def _try(self, job: Job, responder: Responder, *, again: bool) -> None:
        """Answer from one engine. Raise _TryAgain where it died before the client had a byte."""
        job.request.is_with(None)
        lease = await job.acquire()
        job.request.is_with(lease.number)
        job.account.has_engine()
        try:
            if not responder.said and not job.has_kept:
                check_spent(job.account.key)
            await (_ask if job.limit is None else _ask_within)(job, lease, responder)
        except (EngineUnreachable, StreamBroken) as error:
            if said := job.broken_by(error):
                lease.note_broken(said)
            gone = await lease.engine_gone(_SETTLE_SECONDS)
            if gone and again and not lease.engine_stopped and not responder.said and not job.has_kept:
                raise _TryAgain from error
            lost = _lost(lease, gone=gone)
            if not responder.said:
                raise lost from error
            await self._end_stream(job, responder, lost)
        except EngineStreamInvalid as error:
            if not responder.said:
                raise
            await self._end_stream(job, responder, error)
        finally:
            lease.release()

    async def _end_stream(self, job: Job, responder: Responder, error: SupervisorError) -> None:
        assert job.filtered is not None  # what was sent came through it
        job.account.failed(error, in_stream=True)
        _, envelope, _ = self.relaying.render_error(error)
        await responder.end(job.filtered.ending(json.loads(envelope)["error"]))


def _with(body: ClientJson, fields: Mapping[str, object]) -> ClientJson:
    return replace(body, text=set_fields(body.text, fields), fields={**body.fields, **fields}) if fields else body


def _fitted(body: ClientJson, settings: RequestSettings) -> ClientJson:
    """Return the request with the model's defaults, and with its parameters under llama-server's names.

    Raises InvalidRequest.
    """
    fitted = fit(body.fields, opaque=body.opaque)
    fields = {**settings.missing(body.fields), **fitted.fields}
    if fitted.dropped:
        kept = {name: value for name, value in body.fields.items() if name not in fitted.dropped}
        body = replace(body, text=without(body.text, fitted.dropped), fields=kept)
    return _with(body, fields)


def _plan(prepared: Prepared, key: Key | None) -> OutgoingRequest:
    """Return what the engine is asked for beside what the client wants."""
    if not prepared.native:
        return OutgoingRequest()
    plan = outgoing_request(kind_of(prepared.path), prepared.asked)
    return plan if key is None else plan.telling(prepared.asked)


async def _ask(job: Job, lease: Lease, responder: Responder) -> None:
    if job.prepared.native:
        await check_ending(lease.client, job.prepared.path, job.body)
    path, payload = await job.question(lease.client)
    filtered = job.new_filter()
    with metered(job.account, job.prepared.asked, job.prepared.path, job.body.size) as meter:
        job.request.is_heard_by(meter.so_far)
        async with job.sent(lease.client, path, payload) as upstream:
            answer = meter.hears(upstream, native=job.prepared.native)
            if job.limit is not None:
                job.limit.watches(answer)
            await _answer(job, answer, filtered, responder)


async def _ask_within(job: Job, lease: Lease, responder: Responder) -> None:
    """Answer, but not for longer than the model allows. Raise TimeLimit where there is nothing to be ended."""
    assert job.limit is not None  # who has none is not asked within it
    try:
        async with job.limit.running():
            await _ask(job, lease, responder)
    except TimeoutError:
        if not responder.ended:
            await _cut(job, job.limit, responder)


async def _cut(job: Job, limit: Limit, responder: Responder) -> None:
    """End an answer in the middle."""
    ending, way = limit.end(), job.prepared.way
    filtered = job.filtered or job.new_filter()
    filtered.cut()
    folding = job.folding = job.folding or job.plan.new_fold()
    if folding is None:
        await responder.comment(limit.why)
        await responder.write(filtered.feed(ending))
        await responder.end()
    else:
        folding.cut()
        folding.feed(filtered.feed(ending) if way.looks else ending)
        await folded(folding, responder, way.said)


async def _answer(job: Job, upstream: EngineResponse, filtered: Filter, responder: Responder) -> None:
    way = job.prepared.way
    if job.folding is None:
        job.folding = job.plan.new_fold()
    is_stream = upstream.status == 200 and upstream.content_type == "text/event-stream"
    if not is_stream and not job.prepared.native:
        await pass_as_it_is(upstream, responder)
    elif not is_stream:
        await pass_whole(upstream, responder, way.answer if way.rewrites else None)
    elif job.folding is None:
        await stream_through(upstream, filtered, responder, job.heard)
    else:
        through = filtered if way.looks else None
        await fold(upstream, job.folding, responder, through, way.said)


async def _keep(job: Job, why: AskAgain, responder: Responder) -> None:
    """Keep what the client keeps of an answer that is asked for once more."""
    if not why.keeps:
        job.folding = None
    elif job.folding is not None:
        job.folding.feed(why.before)
        job.has_kept = True
    elif why.before:
        await responder.write(why.before)
    job.prepared.way.again(why, goes_on=responder.said or job.has_kept)


async def _unless_cancelled(request: InflightRequest, work: Coroutine[object, object, _Ready]) -> _Ready:
    """Return the result of work for a request. Raise RequestCancelled where somebody cancels the request."""
    try:
        return await work
    except asyncio.CancelledError:
        error = request.was_cancelled()
        if error is None:
            raise
        raise error from None


@dataclass(frozen=True, slots=True)
class _Ready:
    """A request that may be asked of an engine. affinity: the key of its conversation, where there are several."""

    body: ClientJson
    prepared: Prepared
    affinity: str | None


class _TryAgain(Exception):
    """The engine died and the client has seen nothing yet."""


def _lost(lease: Lease, *, gone: bool) -> SupervisorError:
    model = lease.model
    if lease.broken is not None:
        return error_of(lease.broken)
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
