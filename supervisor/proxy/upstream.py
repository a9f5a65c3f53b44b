"""Pass on `/upstream/MODEL/…`: whatever an engine answers, on whatever path, as it is.

The model's id may contain slashes: the shortest beginning of the path that names a model counts. Only the content type
goes along in either direction, no other header. What only looks at an engine neither wakes nor keeps it; nor does HEAD,
or a browser's GET of which nobody knows which page it comes from. `/props` and `/slots` wait for an engine that comes
up. A generation is asked for as on the relayed paths, so that a client that leaves frees its slot; the client gets what
the engine would have answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, TypeAlias
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.core.engine_output.broken import said_broken
from supervisor.core.engine_output.errors import error_in
from supervisor.core.requests.browsers import from_unknown_page
from supervisor.core.requests.keys import Key
from supervisor.core.requests.media import Taking
from supervisor.core.requests.scopes import LOOKS
from supervisor.core.routes import UPSTREAM, api_of, is_withheld, kind_of, makes_vectors, route_of
from supervisor.core.stream.apis import Api
from supervisor.core.stream.fold import StreamFold
from supervisor.core.stream.outgoing import OutgoingRequest, outgoing_request
from supervisor.core.text.foreignjson import written
from supervisor.core.text.members import set_fields
from supervisor.engines.client import EngineClient, EngineResponse, EngineUnreachable, Payload
from supervisor.errors import EngineLost, InvalidRequest, ModelNotLoaded, RouteNotFound, SupervisorError
from supervisor.pool.inflight import InflightRequest
from supervisor.pool.pool import Lease
from supervisor.proxy.account import Account, ignored
from supervisor.proxy.answers import Changed, StreamBroken, fold, pass_whole
from supervisor.proxy.asgi import AS_HEAD, ClientGone, Responder, while_connected
from supervisor.proxy.bodies import JSON, ClientJson, Room, declared_size, header, read_any, read_form
from supervisor.proxy.elsewhere import Call
from supervisor.proxy.exchange import transport_of
from supervisor.proxy.media import check_ending, check_sent, check_unseen, taking_of
from supervisor.proxy.metered import Metered, check_key, check_spent, key_of, metered, told
from supervisor.proxy.naming import seen_by
from supervisor.proxy.patience import Patience
from supervisor.proxy.relay import Relaying
from supervisor.proxy.slotfiles import check_slot_action, is_slot_action
from supervisor.proxy.toolcalls import Prepared, plainly

_REFUSED = 400  # the statuses from here on tell of an error
_FAILED = 500  # the statuses from here on tell of a failure of the engine
_LONGEST_ERROR = 1 << 16  # bytes
_AWAITED = frozenset({"/props", "/slots"})  # what they tell of an engine that comes up is worth waiting for
_FORMS = ("/audio/transcriptions",)  # whose bodies are forms, with the medium itself in them
_MOST_SLASHES = 16  # in the id of another node's model
_Ends: TypeAlias = tuple[Responder, Metered | None]  # of an answer: who gets it, and who counts it


OWN_PATH: Final = "supervisor.own_path"
"""In the scope of a request to a path of ours, whose errors have our form."""


def upstream_endpoint(relaying: Relaying, slots_max_bytes: Callable[[], int]) -> ASGIApp:
    """Return the ASGI endpoint below UPSTREAM; `slots_max_bytes`: of the slots that clients save in one folder."""
    return UpstreamEndpoint(relaying, slots_max_bytes)


@dataclass(frozen=True)
class _Call:
    """A request as the engine gets it.

    Attributes:
        target: path and query, percent-encoded as the client sent it.
        own_path: it came to a path of ours.
    """

    method: str
    target: str
    content_type: str
    body: Payload
    own_path: bool = False


@dataclass(frozen=True)
class UpstreamEndpoint:
    """The endpoint that passes requests on to the engine of the model that the path names."""

    relaying: Relaying
    slots_max_bytes: Callable[[], int]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        responder = Responder(send, transport_of(scope), api_of(scope["path"]))
        key = key_of(scope)
        try:
            with self.relaying.bodies.room() as room:
                model, path = self._split(scope, key)
                check_key(key, scope["method"], unquote(path))
                if is_withheld(scope["method"], unquote(path)):
                    raise RouteNotFound(f"{scope['method']} {path} of an engine is not passed on (docs/rest.md).")
                body, said = await _body(scope, path, receive, room)
                work = self._elsewhere(scope, (model, path), (body, said), room, responder)
                await while_connected(scope, receive, work)
        except ClientGone:
            return
        except SupervisorError as error:
            await responder.whole(*self.relaying.render_error(told(key, error)))

    async def _elsewhere(
        self,
        scope: Scope,
        where: tuple[str, str],
        given: tuple[Payload, ClientJson | None],
        room: Room,
        responder: Responder,
    ) -> None:
        """Have another node answer, where it is for one; answer here otherwise. It counts where it is answered."""
        elsewhere, (model, target), (body, said) = self.relaying.elsewhere, where, given
        if elsewhere is not None:
            kind = said.content_type if said is not None else header(scope, b"content-type").decode("latin-1")
            whole = body if said is None or body else said.payload(said.text)
            stream = said is not None and said.fields.get("stream") is True
            path, wakes = UPSTREAM + model + target, scope["method"] == "POST"
            there = f"{UPSTREAM}{quote(model, safe='')}{target}"
            call = Call(scope, model, whole, kind or JSON, path, api_of(path), stream, said, wakes, there)
            if await elsewhere.answers(call, responder, Account(ignored, path, scope, key_of(scope))):
                return
        await self._answer(scope, where, given, room, responder)

    async def _answer(
        self,
        scope: Scope,
        where: tuple[str, str],
        given: tuple[Payload, ClientJson | None],
        room: Room,
        responder: Responder,
    ) -> None:
        (model, target), (body, said) = where, given
        query = scope.get("query_string", b"").decode("latin-1")
        as_json = said is not None and said.content_type == JSON  # for the engine, too, whatever the client calls it
        kind = JSON if as_json else header(scope, b"content-type").decode("latin-1") or JSON
        call = _Call(scope["method"], f"{target}?{query}" if query else target, kind, body, OWN_PATH in scope)
        if scope["method"] == "GET" and (target in LOOKS or AS_HEAD in scope or from_unknown_page(_headers(scope))):
            await self._look(model, call, responder)
            return
        if is_slot_action(call.method, target):
            options = self.relaying.registry.find(model).options
            await asyncio.to_thread(check_slot_action, model, options, query, self.slots_max_bytes())
            call = replace(call, content_type=JSON)  # as a form it could name another action
        posts, key = call.method == "POST", key_of(scope)
        generates, vectors = posts and _generates(target), posts and makes_vectors(target)
        native = not self.relaying.services(self.relaying.registry.find(model)).plain
        if said is None and (vectors or (generates and key is not None)):
            raise InvalidRequest("The request body is no JSON that can be read here (docs/relay.md).")
        stream = generates and said is not None and said.fields.get("stream") is True
        with self.relaying.inflight.entered(model, UPSTREAM + model + target, stream=stream) as request:
            try:
                with request.fetches():
                    body, said = await self._with_media(model, target, given, room)
                call = replace(call, body=body)
                make = partial(_generation, call, target, key=key, taking=self._taking(model))
                generation = await said.work(partial(make, request=said)) if said and generates and native else None
                asked = None if generation is None else generation.prepared.asked
                with (
                    self._account(scope, request, target) as account,
                    metered(account, asked, target, room.size) as meter,
                ):
                    if self.relaying.capturing is not None and said is not None:
                        await self.relaying.capturing.begin(scope, account, said, responder)
                    spender = key if generates or vectors else None
                    acquire = self._acquire(model, Patience.of(scope), spender, (target, said if native else None))
                    await self._with_lease(request, (call, acquire), generation, (responder, meter))
            except asyncio.CancelledError:
                error = request.was_cancelled()
                if error is None:
                    raise
                if not responder.started:
                    raise error from None

    async def _with_media(
        self, model: str, path: str, given: tuple[Payload, ClientJson | None], room: Room
    ) -> tuple[Payload, ClientJson | None]:
        """Return a request that names no media by addresses of a network: nothing is fetched by an engine."""
        body, said = given
        if said is None:
            if not path.endswith(_FORMS):
                texts = (body,) if isinstance(body, bytes) else body
                await asyncio.to_thread(check_unseen, texts, self._taking(model))
            return given
        filled = await self.relaying.media.put_in(said, room, self._taking(model))
        return given if filled is said else (filled.payload(filled.text), filled)

    def _taking(self, model: str) -> Taking:
        entry = self.relaying.registry.find(model)
        return taking_of(entry, self.relaying.services(entry))

    async def _look(self, model: str, call: _Call, responder: Responder) -> None:
        pool = self.relaying.pool
        if call.method == "GET" and call.target.partition("?")[0] in _AWAITED and pool.is_coming(model):
            await pool.at_rest(model)
        client = pool.ready_client(model)
        if client is not None:
            try:
                await _pass_on(model, client, call, (responder, None))
                return
            except EngineLost:
                if pool.ready_client(model) is client:  # else it was told to end meanwhile
                    raise
        raise ModelNotLoaded(f"'{model}' is not loaded, and {call.target} does not load it.", param="model")

    def _acquire(
        self, model: str, patience: Patience | None, spender: Key | None, asked: tuple[str, ClientJson | None]
    ) -> Callable[[], Awaitable[Lease]]:
        path, said = asked

        async def acquire() -> Lease:
            lease = await self.relaying.pool.acquire(model)
            try:
                check_spent(spender)
                if said is not None:
                    await check_ending(lease.client, path, said)
            except BaseException:
                lease.release()
                raise
            return lease

        return acquire if patience is None else partial(patience.while_it_lasts, acquire)

    async def _with_lease(
        self,
        request: InflightRequest,
        asked: tuple[_Call, Callable[[], Awaitable[Lease]]],
        generation: _Generation | None,
        ends: _Ends,
    ) -> None:
        call, acquire = asked
        lease = await acquire()
        request.is_with(lease.number)
        if (meter := ends[1]) is not None:
            meter.account.has_engine()
            request.is_heard_by(meter.so_far)
        try:
            said = await _pass_on(request.model, lease.client, call, ends, generation)
            if said:
                lease.note_broken(said)
        finally:
            lease.release()
            if meter is not None and (refused := ends[0].refused):
                meter.account.refused(*refused)

    def _account(self, scope: Scope, request: InflightRequest, target: str) -> Account:
        """Return the account of a request for an engine's path; all that are in no row count as one."""
        path = f"{UPSTREAM}MODEL{target if route_of(target) is not None else '/*'}"
        account = self.relaying.account(path, scope)
        account.model, account.stream = request.model, request.stream
        return account

    def _split(self, scope: Scope, key: Key | None) -> tuple[str, str]:
        """Return model and the rest of the path. Raise ModelNotFound, for one that the key does not see, too."""
        rest = scope["raw_path"].partition(b"?")[0].decode("latin-1").removeprefix(UPSTREAM)
        registry = seen_by(key, self.relaying.registry)
        for name, target in islice(_cuts(rest), registry.most_slashes() + 1):
            entry = registry.get(unquote(name))
            if entry is not None:
                return entry.id, _spelled(target) or "/"
        if (elsewhere := self.relaying.elsewhere) is not None:
            for name, target in islice(_cuts(rest), _MOST_SLASHES):
                model = elsewhere.id_of(unquote(name))
                if model is not None and (key is None or key.rules.sees(model)):
                    return model, _spelled(target) or "/"
        return registry.find(unquote(rest).strip("/")).id, "/"


async def _body(scope: Scope, path: str, receive: Receive, room: Room) -> tuple[Payload, ClientJson | None]:
    """Return the body, and what a generation asks; the body of a GET, which nobody reads, is not waited for."""
    if scope["method"] == "GET":
        return b"", None
    route = route_of(path) if scope["method"] == "POST" else None
    if route is not None and route.is_form:
        return b"", await read_form(receive, room, scope)
    return await read_any(receive, room, declared_size(scope), as_json=not path.endswith(_FORMS))


def _generates(path: str) -> bool:
    """Return whether the engine's path generates."""
    route = route_of(path)
    return route is not None and route.generates


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _spelled(path: str) -> str:
    """Return a path in the one spelling that everybody reads alike, as engines decode more than percent escapes."""
    return quote(unquote_to_bytes(path), safe="/:@!$&'()*+,;=")


def _cuts(path: str) -> Iterator[tuple[str, str]]:
    """Yield every way to cut the path before a slash, and the whole."""
    at = path.find("/")
    while at >= 0:
        yield path[:at], path[at:]
        at = path.find("/", at + 1)
    yield path, ""


@dataclass(frozen=True)
class _Generation:
    """A generation, as the engine gets it, and the handling of its stream. `api`: the client's."""

    call: _Call
    prepared: Prepared
    plan: OutgoingRequest
    api: Api

    async def answer(self, upstream: EngineResponse, responder: Responder) -> str:
        """Send what the client asked for; return the error of a failed device. Raise StreamBroken without an end."""
        way, folding = self.prepared.way, self.plan.new_fold()
        if folding is not None:
            return await _folded(upstream, folding, responder, way.said)
        relay = way.stream_filter(self.api, drop_progress=self.plan.drop_progress)
        filtered = way.stream(relay)
        await responder.start()
        while piece := await upstream.read_some():
            if events := filtered.feed(piece):
                await responder.write(events)
        await responder.end(relay.withheld + relay.partial)
        return relay.broken


def _generation(call: _Call, path: str, *, request: ClientJson, key: Key | None, taking: Taking) -> _Generation:
    """Return the request for a generation. Raise MediaUrlRefused."""
    prepared = plainly(path, request)
    if request.content_type == JSON:
        check_sent(request, prepared.body, prepared.asked, taking)
    plan = outgoing_request(kind_of(prepared.path), prepared.asked)
    plan = plan if key is None else plan.telling(prepared.asked)
    body = request.payload(set_fields(prepared.body, {**plan.changes, **prepared.needs}))
    kind = call.content_type if request.content_type == JSON else request.content_type
    sent = replace(call, target=prepared.path + call.target.removeprefix(path), body=body, content_type=kind)
    return _Generation(sent, prepared, plan, api_of(path))


async def _pass_on(
    model: str, client: EngineClient, call: _Call, ends: _Ends, generation: _Generation | None = None
) -> str:
    """Send what the engine answers. Return its message where that is the error of a failed device."""
    responder, meter = ends
    sent = call if generation is None else generation.call
    try:
        more = "" if meter is None else meter.account.passes_on
        async with client.send(sent.method, sent.target, sent.body, sent.content_type, more) as response:
            upstream = response if meter is None else meter.hears(response, native=generation is not None)
            if generation is not None and upstream.status == 200 and upstream.content_type == "text/event-stream":
                return await generation.answer(upstream, responder)
            if call.own_path and upstream.status >= _REFUSED:
                await pass_whole(upstream, responder, None)
                return ""
            return await _as_it_is(upstream, responder)
    except (EngineUnreachable, StreamBroken) as error:
        if responder.started:
            raise  # a body that breaks off is all that a client can be told: the connection closes
        raise EngineLost(f"The engine of '{model}' closed the connection. Repeat the request.") from error


async def _folded(upstream: EngineResponse, into: StreamFold, responder: Responder, changed: Changed) -> str:
    try:
        await fold(upstream, into, responder, changed=changed)
    except StreamBroken as error:
        if not error.said:
            raise
        await responder.whole(_FAILED, written({"error": into.error}))
        return error.said
    return ""


async def _as_it_is(upstream: EngineResponse, responder: Responder) -> str:
    headers = [(b"content-type", upstream.full_content_type)] if upstream.full_content_type else []
    await responder.start(upstream.status, headers)
    error = b""
    while piece := await upstream.read_some():
        if upstream.status >= _FAILED:
            error += piece[: _LONGEST_ERROR - len(error)]
        await responder.write(piece)
    await responder.end()
    return said_broken(error_in(error)) if error else ""
