"""Relay requests: JSON in → lease → engine → bytes back. The endpoints are plain ASGI applications.

A generation is always asked of the engine as a stream with progress, whatever the client wanted: only then does the
engine notice within milliseconds that nobody listens any more (docs/relay.md). A client that wanted no stream gets the
stream folded into one object. A request of which the client has not had a byte is tried once more on a fresh engine
when its engine dies by itself. One that finds its engine dead has not been tried.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.core.doors.turned import Turn
from supervisor.core.doors.turns import TURNS
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.params.fit import fit
from supervisor.core.params.settings import RequestSettings
from supervisor.core.recovery import AskAgain
from supervisor.core.requests.affinity import affinity_of
from supervisor.core.requests.keys import Key
from supervisor.core.routes import SERVED, Route, kind_of
from supervisor.core.stream.outgoing import OutgoingRequest, outgoing_request
from supervisor.core.text.members import set_fields, without
from supervisor.engines.client import EngineUnreachable, NotTaken
from supervisor.engines.kinds import service_of
from supervisor.engines.service import Service
from supervisor.errors import EngineLost, EngineStreamInvalid, SupervisorError
from supervisor.pool.inflight import Inflight, InflightRequest
from supervisor.pool.lease import error_of
from supervisor.pool.pool import Lease, Pool, Wait
from supervisor.proxy.account import Account, Begins, Observer, ignored
from supervisor.proxy.answers import StreamBroken
from supervisor.proxy.asgi import ClientGone, Responder, while_connected
from supervisor.proxy.asking import ask, keep
from supervisor.proxy.bodies import Bodies, ClientJson, Room, declared_size, read_form, read_json
from supervisor.proxy.capturing import Capturing
from supervisor.proxy.doors import Acquire, Entered, NoWishes, Wishing, granted, only_loaded
from supervisor.proxy.elsewhere import MEANT, Call, Elsewhere
from supervisor.proxy.exchange import transport_of
from supervisor.proxy.job import Job
from supervisor.proxy.media import Media, check_sent, taking_of
from supervisor.proxy.metered import check_spent, key_of, told
from supervisor.proxy.naming import Naming, split_query
from supervisor.proxy.patience import Patience
from supervisor.proxy.plain import sent_as_it_is
from supervisor.proxy.shortening import Shortening, TooLong
from supervisor.proxy.timelimit import limit_of
from supervisor.proxy.toolcalls import Prepared, ToolCalls
from supervisor.proxy.waiting import Waiting

_SETTLE_SECONDS = 5.0  # how long a broken connection may take to turn out as the engine's end

_Result = TypeVar("_Result")
_Ends: TypeAlias = tuple[Responder, Account]

RenderError = Callable[[SupervisorError], tuple[int, bytes, Mapping[str, str]]]


@dataclass(frozen=True)
class Relaying:
    """The parts that all relayed paths share.

    render_error: status, body and headers for an error, in the form of the paths' API.
    observer: is told of every request when it has ended. begins: a trace of each; None: there are none.
    capturing: hears those whose prompts and answers are kept; None: nobody does.
    elsewhere: other nodes, which answer some of them; None: there are none.
    services: says how the engine of a model is asked.
    wishing: grants what requests of other programs' APIs wish of their models.
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
    wishing: Wishing = field(default_factory=NoWishes)
    begins: Begins | None = None
    capturing: Capturing | None = None
    elsewhere: Elsewhere | None = None

    def account(self, path: str, scope: Scope) -> Account:
        """Return the account of a request that arrives now, on a path of the table."""
        account = Account(self.observer, path, scope, key_of(scope))
        if self.begins is not None:
            account.traced(self.begins, scope)
        return account


def relay_endpoints(relaying: Relaying) -> Mapping[str, ASGIApp]:
    """Return the ASGI endpoint of every relayed path."""
    return {path: RelayEndpoint(route, relaying, TURNS.get(path)) for path, route in SERVED.items()}


@dataclass(frozen=True)
class RelayEndpoint:
    """A path whose requests go to the engine of the model that they mean. turn: of another program's API."""

    route: Route
    relaying: Relaying
    turn: Turn | None = None

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

    async def _answer(self, scope: Scope, body: ClientJson, room: Room, ends: _Ends) -> None:
        patience, (responder, account) = Patience.of(scope), ends
        relaying, key, said, entered = self.relaying, account.key, body, None
        if relaying.elsewhere is not None and await relaying.elsewhere.answers(
            self._call(scope, body), responder, account
        ):
            return
        if self.turn is not None:
            entered = await body.work(partial(Entered.of, self.turn, body, account, relaying.registry))
            body = entered.body
        named = scope.get(MEANT, body.fields.get("model"))
        entry = await relaying.naming.wanted(named, scope.get("query_string", b""), key)
        account.model, account.stream = entry.id, body.fields.get("stream") is True
        service = relaying.services(entry)
        service.check(self.route.path if entered is None or service.plain else entered.turned.path, entry.id)
        if relaying.capturing is not None:
            await relaying.capturing.begin(scope, account, said, responder)
        asked = _Asked(entry, service, body, entered, key)
        with (
            relaying.inflight.entered(entry.id, self.route.path, stream=account.stream) as request,
            granted(relaying.wishing, entry, entered, key),
        ):
            if entered is not None and entered.turned.wishes:
                await _unless_cancelled(request, relaying.wishing.before(entry, entered.turned.wishes, key))
            if entered is not None and entered.loads_only:
                acquire = _within(patience, partial(relaying.pool.acquire, entry.id))
                loading = only_loaded(entered, entry, relaying.wishing, acquire, ends)
                return await _unless_cancelled(request, loading)
            ready = await _unless_cancelled(request, self._ready(request, asked, room))
            acquire = partial(relaying.pool.acquire, entry.id, ready.affinity, self._wait(request, responder))
            acquire = _within(patience, acquire)
            limit, prepared = limit_of(entry.requests, entry.id), ready.prepared
            job = Job(request, acquire, _plan(prepared, key), prepared, ready.body, self.route.api, account, limit)
            if entered is not None and entered.turned.shortens:
                job.shortening = Shortening(ready.body, partial(self._again, job, asked))
            await self._cancellable(job, responder)

    def _call(self, scope: Scope, body: ClientJson) -> Call:
        """Return the request as another node would get it."""
        named = scope.get(MEANT) or body.fields.get("model") or split_query(scope.get("query_string", b""))[0]
        stream = body.fields.get("stream") is True
        whole = body.payload(body.text)
        return Call(scope, named, whole, body.content_type, self.route.path, self.route.api, stream, body)

    def _again(self, job: Job, asked: _Asked, body: ClientJson) -> None:
        """Have a job ask for another body."""
        job.body, job.prepared = body, self._prepared(body, asked)[0]
        job.plan = outgoing_request(kind_of(job.prepared.path), job.prepared.asked)

    async def _ready(self, request: InflightRequest, asked: _Asked, room: Room) -> _Ready:
        """Return the request with all that it names by an address, and as the engine gets it."""
        entry, body = asked.entry, asked.body
        with request.fetches():
            body = await self.relaying.media.put_in(body, room, taking_of(entry, asked.service))
        prepared, said = await body.work(partial(self._prepared, body, asked))
        several = entry.policy.replicas_max > 1
        return _Ready(body, prepared, await body.work(partial(affinity_of, said, body.heads)) if several else None)

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

    def _prepared(self, body: ClientJson, asked: _Asked) -> tuple[Prepared, Mapping[str, object]]:
        """Return the request for the engine, and the client's fields, as filters and other servers' names leave them.

        Raises InvalidRequest for a parameter that is out of bounds, MediaUrlRefused.
        """
        entry = asked.entry
        if entry.filters:
            text, fields = entry.filters.apply(body.text, body.fields)
            body = replace(body, text=text, fields=fields)
        if asked.service.plain:
            prepared = sent_as_it_is(self.route, body, entry, asked.service, counted=asked.key is not None)
        else:
            body, prepared = self._in_its_own_way(body, asked)
        if not self.route.is_form:
            check_sent(body, prepared.body, prepared.asked, taking_of(entry, asked.service))
        return prepared, body.fields

    def _in_its_own_way(self, body: ClientJson, asked: _Asked) -> tuple[ClientJson, Prepared]:
        """Return the request with the model's defaults, and as llama-server gets it."""
        entry, entered = asked.entry, asked.entered
        if self.route.is_form:  # its fields are texts, whose form the engine judges
            body = _with(body, entry.requests.missing_in_form(body.fields))
        elif self.route.generates or self.route.prompts:
            body = _fitted(body if entered is None else entered.with_defaults(body, entry), entry.requests)
        calls, path = self.relaying.tool_calls, self.route.path
        if entered is not None:
            return body, entered.prepared(calls, body, entry)
        return body, calls.prepare(path, body, entry, chats=asked.service.chats)

    def _wait(self, request: InflightRequest, responder: Responder) -> Wait | None:
        """Return the way to wait for an engine, where the client can hear something meanwhile."""
        if not request.stream or not self.route.generates:
            return None
        return partial(self.relaying.waiting.wait, request=request, responder=responder)

    async def _tries(self, job: Job, responder: Responder) -> None:
        """Answer; once more where an engine died of it, and as often as the watch asks for it.

        Engines that die before they have a request end in a crash loop, which the pool refuses.
        """
        again = True
        while True:
            try:
                return await self._try(job, responder, again=again)
            except _TryAgain as why:
                again = again and isinstance(why.__cause__, NotTaken)
                job.folding = None
            except AskAgain as why:
                await keep(job, why, responder)
            except TooLong as why:
                assert job.shortening is not None  # it has said so
                await job.shortening.shorten(why.exceeded)

    async def _try(self, job: Job, responder: Responder, *, again: bool) -> None:
        """Answer from one engine. Raise _TryAgain where it died before the client had a byte."""
        job.request.is_with(None)
        lease = await job.acquire()
        job.request.is_with(lease.number)
        job.account.has_engine()
        try:
            if not responder.said and not job.has_kept:
                check_spent(job.account.key)
            await ask(job, lease, responder)
        except (EngineUnreachable, StreamBroken) as error:
            if said := job.broken_by(error):
                lease.note_broken(said)
            gone = await lease.engine_gone(_SETTLE_SECONDS)
            again = again or isinstance(error, NotTaken)
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


def _within(patience: Patience | None, acquire: Acquire) -> Acquire:
    return acquire if patience is None else partial(patience.while_it_lasts, acquire)


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


async def _unless_cancelled(request: InflightRequest, work: Coroutine[object, object, _Result]) -> _Result:
    """Return the result of work for a request. Raise RequestCancelled where somebody cancels the request."""
    try:
        return await work
    except asyncio.CancelledError:
        error = request.was_cancelled()
        if error is None:
            raise
        raise error from None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that means a model.

    Attributes:
        service: how its engine is asked. entered: how it came in by another program's API. key: its client's.
    """

    entry: ModelEntry
    service: Service
    body: ClientJson
    entered: Entered | None
    key: Key | None


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
