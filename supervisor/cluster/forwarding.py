"""Clients' requests on their way to the node that answers them, and its answers on their way back.

The node that a client asks is the front door. It looks at the request's model, chooses a node, and passes the request
on as it came, once at most: a request that a node has passed on is answered where it arrives. Bytes of the answer are
not looked at, as the other node has made of them what the client wants.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from supervisor.cluster.counts import Counts
from supervisor.cluster.passed import PASSED, Passed, passed_of
from supervisor.cluster.peerresponse import PeerResponse, PeerUnreachable
from supervisor.cluster.peers import Peers, Refused
from supervisor.cluster.routing import Routing
from supervisor.cluster.tickets import Tickets
from supervisor.core.cluster.directory import Directory, Seen
from supervisor.core.cluster.messages import MOST_REPLICAS
from supervisor.core.doors.names import meant_names
from supervisor.core.models.registry import Registry
from supervisor.core.requests.affinity import affinity_of
from supervisor.engines.client import Payload
from supervisor.errors import (
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
"""The header with the number of the copy of the model that a node is asked to load, if it has to."""

_MOST_DIGITS: Final = 20
_SPENT_S: Final = 5.0
_PASSED: Final = frozenset({"content-type", "accept", "user-agent", "traceparent", "x-request-timeout", "priority"})
_KEPT: Final = frozenset({
    b"content-type",
    b"content-length",
    b"retry-after",
    b"x-should-retry",
    b"cache-control",
    b"x-accel-buffering",
})


@dataclass(frozen=True)
class Forwarding:
    """The other nodes, for who relays.

    Attributes:
        directory: who is there.
        routing: where requests go.
        registry: the models of this node.
        inflight: all requests that are being answered.
        tickets: what peers' requests have taken here.
        clock: seconds of a monotonic clock.
        counts: of what was passed on to other nodes.
    """

    directory: Directory
    routing: Routing
    peers: Peers
    registry: Registry
    inflight: Inflight
    tickets: Tickets
    clock: Callable[[], float]
    counts: Counts = field(default_factory=Counts)

    def id_of(self, name: str) -> str | None:
        """See `Elsewhere`."""
        return self.directory.id_of(name)

    async def answers(self, call: Call, responder: Responder, account: Account) -> bool:
        """See `Elsewhere`."""
        if PEER in call.scope:
            if call.wakes and (model := self._meant(call)) is not None:
                quoted = _header(call, CLAIM.encode())
                replica = int(quoted) if quoted.isdecimal() and len(quoted) < _MOST_DIGITS else 0
                await self.routing.make_sure(model, min(replica, MOST_REPLICAS - 1))
            return False
        model = self._meant(call)
        if model is None or (account.key is not None and not account.key.rules.sees(model)):
            return False
        if not call.wakes and not self.routing.runs_elsewhere(model):
            return False

        def affinity() -> str | None:
            return None if call.said is None else affinity_of(call.said.fields, call.said.heads)

        async def send(seen: Seen) -> bool:
            account.means(model, stream=call.stream)
            return await self._answered(model, seen, call, (responder, account))

        return await self.routing.answered(model, affinity, send)

    def _meant(self, call: Call) -> str | None:
        """Return the id of the model that is meant, where the cluster knows it; None: this node says what is wrong."""
        return self.meant(call.model) if isinstance(call.model, str) and call.model else None

    def meant(self, name: str) -> str | None:
        """Return the id of the model that a name means here; None where the cluster knows none."""
        names = list(meant_names(name))
        own = next((entry.id for name in names if (entry := self.registry.get(name)) is not None), None)
        return next(filter(None, map(self.directory.id_of, names if own is None else (own,))), None)

    # the request, and its answer

    async def _answered(self, model: str, seen: Seen, call: Call, ends: tuple[Responder, Account]) -> bool:
        """Have a node answer; False where another one may be asked, as the client has had nothing yet."""
        responder, account = ends
        name, client = seen.node.name, self.peers.client(seen.node)
        ticket = secrets.token_hex(16)
        passed = passed_of(model, account.key, ticket, partial(self.tickets.heard, name), time.time())
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
        if (replica := self.routing.replica(account.model or "", node)) is not None:
            headers.append((CLAIM, str(replica)))
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
        node, client = seen.node.name, self.peers.client(seen.node)
        try:
            found = await self.peers.ask(client, "GET", f"/cluster/spent/{ticket}", None, _SPENT_S)
        except (PeerUnreachable, Refused) as error:
            if (key := account.key) is not None:
                self.tickets.missed(node, key.rules.name)
                _log.warning("spent_unknown", node=node, key=key.rules.name, reason=str(error))
            return
        self.tickets.take(found, node, account)


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
