"""Clients' requests on their way to the node that answers them, and its answers on their way back.

The node that a client asks is the front door. It looks at the request's model, chooses a node, and passes the request
on as it came, once at most: a request that a node has passed on is answered where it arrives. Bytes of the answer are
not looked at, as the other node has made of them what the client wants.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

import structlog

from supervisor.cluster.counts import Counts
from supervisor.cluster.member import Member, woken
from supervisor.cluster.passed import PASSED, Passed, passed_of
from supervisor.cluster.peerresponse import PeerResponse, PeerUnreachable
from supervisor.cluster.peers import Peers, Refused, offer_of
from supervisor.cluster.store import StoreUnavailable
from supervisor.cluster.tickets import Tickets
from supervisor.cluster.told import Told
from supervisor.core.cluster.choice import Go, Nowhere, Place, Spill, Wait, Wanted, choose
from supervisor.core.cluster.directory import Directory, Seen
from supervisor.core.cluster.placing import Offer, best
from supervisor.core.doors.names import meant_names
from supervisor.core.requests.affinity import affinity_of
from supervisor.engines.client import Payload
from supervisor.errors import (
    ClusterUnavailable,
    ModelDoesNotFit,
    ModelMoved,
    NodeLost,
    RequestCancelled,
    SupervisorError,
)
from supervisor.pool.inflight import Inflight
from supervisor.proxy.account import Account
from supervisor.proxy.answers import BrokenOff
from supervisor.proxy.asgi import Responder
from supervisor.proxy.elsewhere import MOVED, PEER, Call
from supervisor.system.requestid import current_id

_log = structlog.get_logger()

CLAIM: Final = "x-supervisor-claim"
"""The header with the revision of the claim by which a node is asked for a model."""

_PLAN_S: Final = 5.0
_MOST_TRIES: Final = 4
_RETRY_S: Final = 5.0
_LOOK_S: Final = 1.0
_SPENT_S: Final = 5.0
_FULL_S: Final = 10.0  # for which no node is asked again for free room
_MOST_DIGITS: Final = 20
_PASSED: Final = frozenset({"content-type", "accept", "user-agent", "traceparent", "x-request-timeout", "priority"})
_KEPT: Final = frozenset({
    b"content-type",
    b"content-length",
    b"retry-after",
    b"x-should-retry",
    b"cache-control",
    b"x-accel-buffering",
})

Plan = Callable[[str], Awaitable[Offer]]
"""Says whether a model fits on this node. Raises SupervisorError."""


@dataclass(frozen=True)
class Forwarding:
    """The other nodes, for who relays.

    Attributes:
        directory, member: who is there, and who may load what.
        told: what runs on this node.
        plan: this node's own offer.
        inflight: all requests that are being answered.
        tickets: what peers' requests have taken here.
        clock: seconds of a monotonic clock.
        counts: of what was passed on to other nodes.
    """

    directory: Directory
    member: Member
    peers: Peers
    told: Told
    plan: Plan
    inflight: Inflight
    tickets: Tickets
    clock: Callable[[], float]
    _placing: dict[str, asyncio.Task[str | None]] = field(default_factory=dict)
    _full: dict[str, float] = field(default_factory=dict)  # when no node had free room for another copy
    counts: Counts = field(default_factory=Counts)

    def id_of(self, name: str) -> str | None:
        """See `Elsewhere`."""
        return self.directory.id_of(name)

    async def answers(self, call: Call, responder: Responder, account: Account) -> bool:
        """See `Elsewhere`."""
        if PEER in call.scope:
            self._check_claim(call)
            return False
        model = self._meant(call)
        if model is None or (account.key is not None and not account.key.rules.sees(model)):
            return False
        tried: set[str] = set()
        if not call.wakes and not self._runs_elsewhere(model):
            return False
        for _ in range(_MOST_TRIES):
            node = await self._node(model, call, tried)
            if node is None:
                return False
            account.means(model, stream=call.stream)
            if await self._answered(model, node, call, (responder, account)):
                return True
            tried.add(node.node.name)
        raise ClusterUnavailable(
            f"No node could answer for '{model}': {len(tried)} were tried. Repeat the request.", retry_after=_RETRY_S
        )

    def _meant(self, call: Call) -> str | None:
        """Return the id of the model that is meant, where the cluster knows it; None: this node says what is wrong."""
        return self.meant(call.model) if isinstance(call.model, str) and call.model else None

    def meant(self, name: str) -> str | None:
        """Return the id of the model that a name means here; None where the cluster knows none."""
        names = list(meant_names(name))
        own = next((entry.id for name in names if (entry := self.told.registry.get(name)) is not None), None)
        return next(filter(None, map(self.directory.id_of, names if own is None else (own,))), None)

    def _check_claim(self, call: Call) -> None:
        """Raise ModelMoved for a model that is to be loaded here though another node has claimed it."""
        model = self._meant(call)
        if model is None or self.told.running(model) is not None:
            return
        quoted = _header(call, CLAIM.encode())
        known = int(quoted) if quoted.isdecimal() and len(quoted) < _MOST_DIGITS else 0
        claims = self.directory.claims(model, self.clock())
        if any(one.claim.node == self.directory.me for one in claims):
            return
        for one in claims:
            if one.revision > known:
                raise ModelMoved(f"'{model}' is for the node {one.claim.node} to load. Repeat the request there.")

    # where to

    async def _node(self, model: str, call: Call, tried: set[str]) -> Seen | None:
        """Return the node that is to answer; None: this one. Waits while somebody else is about to know."""
        said = call.said
        key = affinity_of(said.fields, said.heads) if said is not None and self._several(model) else None
        with self.member.changes.watch() as changed:
            while True:
                changed.clear()
                now, spills = self.clock(), model not in self._placing
                spills = spills and now - self._full.get(model, -_FULL_S) >= _FULL_S
                wanted = Wanted(model, key, frozenset(tried), self.told.running(model), spills)
                match choose(self.directory, wanted, now):
                    case Go(name):
                        return self._other(name)
                    case Spill(back, place):
                        return self._other(await self._spilled(model, place) or back)
                    case Place(nodes, over):
                        await self._placed(model, Place(nodes, over))
                    case Wait():
                        await woken(changed, _LOOK_S)
                    case Nowhere(why):
                        raise ClusterUnavailable(
                            f"'{model}' cannot be loaded now: {why}. Repeat the request in a moment.",
                            retry_after=_RETRY_S,
                        )

    def _other(self, name: str) -> Seen | None:
        return None if name == self.directory.me else self.directory.node(name)

    def _runs_elsewhere(self, model: str) -> bool:
        """Return whether other nodes alone have the model loaded."""
        return self.told.running(model) is None and bool(self.directory.running(model, self.clock()))

    def _several(self, model: str) -> bool:
        return len(self.directory.running(model, self.clock())) > 1

    async def _placed(self, model: str, place: Place) -> None:
        """Have a node claim the model. All who want it here at the same time wait for one placement."""
        await asyncio.shield(self._placing.get(model) or self._begin(model, self._place(model, place)))

    async def _spilled(self, model: str, place: Place) -> str | None:
        """Have a node claim another copy of the model; None where nobody has free room for it."""
        node = await asyncio.shield(self._begin(model, self._spill(model, place)))
        if node is None:
            now = self.clock()
            for other in [one for one, since in self._full.items() if now - since >= _FULL_S]:
                del self._full[other]
            self._full[model] = now
        return node

    def _begin(self, model: str, work: Coroutine[None, None, str | None]) -> asyncio.Task[str | None]:
        task = self._placing[model] = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._placing.pop(model, None))
        return task

    async def _place(self, model: str, place: Place) -> str:
        answers = await self._offers(model, place)
        found = best((one for one in answers if isinstance(one, Offer)), place.nodes)
        if found is None:
            refusals = [one for one in answers if isinstance(one, SupervisorError)]
            raise refusals[0] if refusals else ModelDoesNotFit(f"'{model}' fits on no node of the cluster now.")
        try:
            node = await self.member.claim(model, found.node, place.replica, place.over)
        except StoreUnavailable as error:
            raise ClusterUnavailable(
                f"The cluster cannot decide who loads '{model}' now ({error}). Repeat the request in a moment.",
                retry_after=_RETRY_S,
            ) from None
        _log.info("model_placed", model=model, node=node)
        return node

    async def _spill(self, model: str, place: Place) -> str | None:
        offers = [one for one in await self._offers(model, place) if isinstance(one, Offer)]
        found = best((one for one in offers if one.is_free), place.nodes)
        if found is None:
            return None
        try:
            node = await self.member.claim(model, found.node, place.replica)
        except StoreUnavailable:
            return None
        _log.info("model_spilled", model=model, node=node, replica=place.replica)
        return node

    async def _offers(self, model: str, place: Place) -> list[Offer | SupervisorError]:
        return await asyncio.gather(*(self.offer(model, name) for name in place.nodes))

    async def offer(self, model: str, name: str) -> Offer | SupervisorError:
        """Return what a node says of loading a model."""
        try:
            if name == self.directory.me:
                return await self.plan(model)
            seen = self.directory.node(name)
            if seen is None:
                return NodeLost(f"The node {name} has left.")
            client = self.peers.client(seen.node.host, seen.node.port)
            found = await self.peers.ask(client, "POST", "/api/v1/plan", {"target": model}, _PLAN_S)
            return offer_of(name, found) if isinstance(found, dict) else Offer(name, fits=False)
        except PeerUnreachable as error:
            self.directory.unreachable(name, self.clock(), gone=error.refused)
            return NodeLost(f"The node {name} cannot be reached ({error}). Repeat the request.")
        except Refused as error:
            return ModelDoesNotFit(f"{name}: {error}")
        except SupervisorError as error:
            return error

    # the request, and its answer

    async def _answered(self, model: str, seen: Seen, call: Call, ends: tuple[Responder, Account]) -> bool:
        """Have a node answer; False where another one may be asked, as the client has had nothing yet."""
        responder, account = ends
        name, client = seen.node.name, self.peers.client(seen.node.host, seen.node.port)
        ticket = secrets.token_hex(16)
        passed = passed_of(model, account.key, ticket, time.time())
        self.counts.begun(name)
        with self.inflight.entered(model, call.path, stream=call.stream) as request:
            try:
                async with client.send(*self._request(call, account, name, passed)) as response:
                    account.has_engine()
                    account.answered(response.status)
                    if self._moved(response, name):
                        return False
                    await _pass_on(response, responder)
            except PeerUnreachable as error:
                self.counts.failed(name)
                self.directory.unreachable(name, self.clock(), gone=error.refused)
                if not responder.said:
                    _log.info("node_unreachable", node=name, reason=str(error))
                    return False
                if not call.stream:
                    raise BrokenOff(str(error)) from error  # nothing can be added to half of an answer
                await _end(call, responder, account, _lost(name, error))
            except asyncio.CancelledError:
                cancelled = request.was_cancelled()
                if cancelled is None:
                    raise
                await _cancelled(call, responder, account, cancelled)
            finally:
                if account.key is not None:
                    await self._spend(seen, account, ticket)
        return True

    def _request(
        self, call: Call, account: Account, node: str, passed: Passed
    ) -> tuple[str, str, list[tuple[str, str]], Payload]:
        """Return method, target, headers and body for the node."""
        scope = call.scope
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name.decode("latin-1") in _PASSED and name != b"content-type"
        ]
        headers.append(("content-type", call.content_type))
        if (request_id := current_id()) is not None:
            headers.append(("x-request-id", request_id))
        claim = self.directory.claim(account.model or "", node, self.clock())
        if claim is not None:
            headers.append((CLAIM, str(claim.revision)))
        headers.append((PASSED, passed.text()))
        query = scope.get("query_string", b"").decode("latin-1")
        target = call.target or scope["raw_path"].decode("latin-1")
        return scope["method"], f"{target}?{query}" if query else target, headers, call.body

    def _moved(self, response: PeerResponse, name: str) -> bool:
        """Return whether the node says that the model is another's to load. It knows better than this one."""
        if MOVED.encode() not in {key.lower() for key, _ in response.headers}:
            return False
        _log.info("model_moved", node=name)
        return True

    async def _spend(self, seen: Seen, account: Account, ticket: str) -> None:
        """Count for a key what the other node has counted for its request."""
        client = self.peers.client(seen.node.host, seen.node.port)
        try:
            found = await self.peers.ask(client, "GET", f"/cluster/spent/{ticket}", None, _SPENT_S)
        except (PeerUnreachable, Refused) as error:
            _log.warning(
                "spent_unknown", node=seen.node.name, key=account.key and account.key.rules.name, reason=str(error)
            )
            return
        self.tickets.take(found, account)


async def _pass_on(response: PeerResponse, responder: Responder) -> None:
    """Send what comes as it comes. Raises PeerUnreachable."""
    await responder.start(response.status, [one for one in response.headers if one[0].lower() in _KEPT])
    framed = any(name.lower() == b"content-length" for name, _ in response.headers)
    held: list[bytes] = []

    def pass_on(arrived: bytes) -> bool:
        if not framed and not response.is_complete and responder.write_now(arrived):
            return True
        held.append(arrived)
        return False

    while not await response.pipe(pass_on):
        for piece in held:
            await responder.write(piece)
        held.clear()
    for piece in held:
        await responder.write(piece)
    await responder.end()


async def _end(call: Call, responder: Responder, account: Account, error: SupervisorError) -> None:
    """End a stream that has begun with an error."""
    account.failed(error, in_stream=True)
    said = {"message": error.message, "type": "server_error", "code": error.code, "param": None}
    if not responder.ended:
        await responder.end(call.api.stream_error(said))


async def _cancelled(call: Call, responder: Responder, account: Account, error: RequestCancelled) -> None:
    if not responder.said:
        raise error
    await _end(call, responder, account, error)


def _lost(name: str, error: PeerUnreachable) -> NodeLost:
    return NodeLost(f"The node {name} was lost while it was answering ({error}). Repeat the request.")


def _header(call: Call, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in call.scope["headers"] if key == name), "")
