"""The port for other nodes: what they may ask here, and how a stranger with an invitation becomes one of them.

A connection with a certificate of the cluster's authority is a node's. A stranger gets the authority's certificate, so
that it can prove whom it talks to, and may ask to be let in. Everything else is not there for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.cluster.kept import Membership, Server
from supervisor.cluster.lending import LENT, Lending
from supervisor.cluster.passed import read_passed
from supervisor.cluster.tickets import Tickets
from supervisor.cluster.views import VIEW
from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.messages import PROTOCOL, Host, ModelName, Node, NodeName, Port
from supervisor.core.cluster.views import View
from supervisor.core.requests.passed import Heard
from supervisor.core.routes import UPSTREAM, asked_of, is_relayed
from supervisor.core.text.foreignjson import NotJson, typed
from supervisor.errors import ClusterRefused, InvalidRequest, NodeUnknown, RouteNotFound, SupervisorError
from supervisor.proxy.asgi import Responder
from supervisor.proxy.connections import RenderError
from supervisor.proxy.elsewhere import MEANT, PEER
from supervisor.proxy.metered import KEY
from supervisor.workers.authority import Authority, BadRequest
from supervisor.workers.members import Member, Members

_log = structlog.get_logger()

AUTHORITY: Final = "/cluster/authority"
JOIN: Final = "/cluster/join"
_SPENT: Final = "/cluster/spent/"
_DRAIN: Final = "/cluster/drain"
_MOST: Final = 16 << 10
_PLAN: Final = ("POST", "/api/v1/plan")


class Joining(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host that wants to be a node.

    Attributes:
        store_port: of its NATS server, if it is to run one.
        request: of a certificate (PEM).
    """

    name: NodeName
    host: Host
    port: Port
    store_port: Port
    secret: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    request: Annotated[str, msgspec.Meta(max_length=8192)]
    protocol: int


class LetIn(msgspec.Struct, frozen=True):
    """A host that is a node from now on. certificate, authority: PEM. nodes: all there are now."""

    certificate: Annotated[str, msgspec.Meta(max_length=8192)]
    authority: Annotated[str, msgspec.Meta(max_length=8192)]
    servers: tuple[Server, ...]
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Admission:
    """Lets hosts in, on the node that has the authority's key.

    Attributes:
        admit_node: makes a host a member, and returns all there are.
    """

    kept: Membership
    authority: Authority
    members: Members
    admit_node: Callable[[Node], tuple[Node, ...]]

    def admit(self, asked: Joining) -> LetIn:
        """Let a host in. Raises ClusterRefused, and OSError where that cannot be kept."""
        if asked.protocol != PROTOCOL:
            raise ClusterRefused("both hosts must have the same version of llama-supervisor", "cluster_protocol")
        if not self.members.is_open(asked.secret, time.time()):
            raise ClusterRefused("the invitation was used, is too old, or its node was restarted", "invitation_unknown")
        if asked.name in self.members or asked.name == self.kept.name:
            raise ClusterRefused(f"there is a node '{asked.name}' already: take another name", "node_exists")
        if self.members.full:
            raise ClusterRefused("no further node is taken", "cluster_full")
        place = Server(asked.host, asked.store_port)
        serves = place in self.kept.servers
        if serves and (place == self.kept.serves or any(one.server == place.text for one in self.members)):
            raise ClusterRefused(f"there is a NATS server of the cluster at {place.text} already", "node_exists")
        try:
            certificate, serial = self.authority.sign_node(asked.request, asked.name, asked.host, server=serves)
        except BadRequest as error:
            raise ClusterRefused(str(error)) from None
        self.members.use(asked.secret)
        self.members.add(Member(asked.name, serial, time.time(), place.text if serves else ""))
        _log.info("node_joined", node=asked.name, host=asked.host)
        nodes = self.admit_node(Node(asked.name, asked.host, asked.port, "", serial=serial))
        return LetIn(certificate, self.authority.certificate, self.kept.servers, nodes)


@dataclass(frozen=True)
class Doorway:
    """The application of the port.

    Attributes:
        inside: the daemon's own application, without its guard.
        admission: None where this node lets nobody in.
        drain: has this node take nothing new, or again.
        lending: files of models, for the others.
        is_member: whether who has a certificate is a node, still and already.
        look: says what this node does now.
        find: the model of a name. Raises ModelNotFound.
    """

    inside: ASGIApp
    kept: Membership
    admission: Admission | None
    tickets: Tickets
    lending: Lending
    drain: Callable[[bool], None]
    is_member: Callable[[Peer], bool]
    look: Callable[[], Awaitable[View]]
    find: Callable[[str], object]
    render_error: RenderError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        peer, asked = scope.get(PEER), (scope["method"], scope["path"])
        try:
            if asked == ("GET", AUTHORITY):
                await _say(send, 200, {"authority": self.kept.authority.read_text("ascii")})
            elif asked == ("POST", JOIN):
                await _say(send, 200, msgspec.to_builtins(await self._join(receive)))
            elif peer is None or not self.is_member(peer):
                raise _unknown(self.kept.name, peer)
            else:
                await self._of_node(peer, scope, receive, send)
        except SupervisorError as error:
            await Responder(send, None).whole(*self.render_error(error))

    async def _of_node(self, peer: Peer, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of a node. Raises SupervisorError."""
        method, path = asked = scope["method"], scope["path"]
        if method == "GET" and path.startswith(_SPENT):
            await _say(send, 200, await self.tickets.spent(path.removeprefix(_SPENT)[:64]))
        elif asked == ("GET", VIEW):
            await _say(send, 200, msgspec.to_builtins(await self.look()))
        elif asked == ("POST", _DRAIN):
            await _say(send, 200, self._drain(await _body(receive)))
        elif method in {"GET", "HEAD"} and path.startswith(LENT):
            await self.lending.answer(scope, receive, send)
        elif asked == _PLAN:
            await self.inside(scope, await self._of_a_model(receive), send)
        elif _may_ask(method, path):
            await self._answer(peer, scope, receive, send)
        else:
            raise RouteNotFound(f"Nodes do not ask each other for {method} {path}.")

    async def _answer(self, peer: Peer, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what a node passes on, within the rules of its client. Raises InvalidRequest."""
        passed = read_passed(scope)
        if passed is None:
            return await self.inside(scope, receive, send)
        scope, said = {**scope, MEANT: passed.model}, passed.rules
        if said is None:
            return await self.inside(scope, receive, send)
        tally = self.tickets.tally(peer.name, said.name, Heard(said.since, said.heard))
        key = said.key(passed.model, peer.name, tally)
        try:
            await self.inside({**scope, KEY: key}, receive, send)
        finally:
            self.tickets.ended(said.ticket, key.usage)

    async def _of_a_model(self, receive: Receive) -> Receive:
        """Return what receives a request for a plan, which is of a model that is known here, as it is known.

        Raises InvalidRequest, ModelNotFound: of a file, or of a model of the hub, only a client may ask for one.
        """
        body = await _body(receive)
        try:
            asked = typed(body, _Plan)
        except NotJson as error:
            raise InvalidRequest(f"The request for a plan cannot be read: {error}.") from None
        self.find(asked.target)
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        return again

    async def _join(self, receive: Receive) -> LetIn:
        body = await _body(receive)
        if self.admission is None:
            raise ClusterRefused("this node lets nobody in: ask the one that began the cluster", "cluster_no_authority")
        try:
            asked = typed(body, Joining)
        except NotJson as error:
            raise InvalidRequest(f"The request to join cannot be read: {error}.") from None
        return self.admission.admit(asked)

    def _drain(self, body: bytes) -> dict[str, bool]:
        try:
            asked = typed(body, _Drain)
        except NotJson as error:
            raise InvalidRequest(f"The request cannot be read: {error}.") from None
        self.drain(asked.on)
        return {"on": asked.on}


def _unknown(here: str, peer: Peer | None) -> SupervisorError:
    if peer is None:
        return RouteNotFound("This port is for the nodes of a cluster.")
    return NodeUnknown(f"The node {here} does not know the node {peer.name}, or not any more.")


class _Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: ModelName


class _Drain(msgspec.Struct, frozen=True):
    on: bool


async def _body(receive: Receive) -> bytes:
    """Return a small body. Raises InvalidRequest."""
    found = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise InvalidRequest("The request broke off.")
        piece: bytes = message.get("body", b"")
        found += piece
        if len(found) > _MOST:
            raise InvalidRequest("The request is too large.")
        if not message.get("more_body"):
            return found


def _may_ask(method: str, path: str) -> bool:
    """Return whether a node may ask another one for this, as it passes it on for clients."""
    return is_relayed(path) or path.startswith(UPSTREAM) or (method == "GET" and asked_of(path) is not None)


async def _say(send: Send, status: int, value: object) -> None:
    await Responder(send, None).whole(status, json.dumps(value).encode())
