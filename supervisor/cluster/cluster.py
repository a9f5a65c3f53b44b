"""This node's part in a cluster, built as a whole: the store, the directory, the way to other nodes and from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog
from starlette.types import ASGIApp

from supervisor.cluster.borrowing import Borrowing
from supervisor.cluster.doorway import Admission, Doorway
from supervisor.cluster.foretelling import Foretelling
from supervisor.cluster.forwarding import Forwarding
from supervisor.cluster.kept import Membership, forget
from supervisor.cluster.lending import Lending
from supervisor.cluster.member import Member
from supervisor.cluster.natsserver import NatsServer
from supervisor.cluster.natsstore import NatsStore
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.cluster.peers import Peers, Refused, offer_of
from supervisor.cluster.roll import Roll
from supervisor.cluster.routing import Routing
from supervisor.cluster.sharing import Sharing
from supervisor.cluster.shown import status_of
from supervisor.cluster.silence import hang_up_on_silent
from supervisor.cluster.store import StoreUnavailable
from supervisor.cluster.tickets import Tickets
from supervisor.cluster.told import Told
from supervisor.cluster.views import Views, node_now
from supervisor.core.cluster.directory import Directory, Seen
from supervisor.core.cluster.placing import Offer
from supervisor.core.cluster.views import View
from supervisor.core.devices import Budgets
from supervisor.core.models.registry import Registry
from supervisor.core.takeover.carried import HeldProcess
from supervisor.core.workers.token import JoinToken, encode
from supervisor.errors import ClusterRefused, ClusterUnavailable, NodeLost, NodeNotFound, SupervisorError
from supervisor.hub.models import HubModels
from supervisor.planning.lookout import Lookout
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.connections import RenderError
from supervisor.service.clusters import (
    ClusterFigures,
    ClusterPlan,
    ClusterStatus,
    Invited,
    NodesNow,
    NodeStatus,
)
from supervisor.service.versions import Taking, Versions
from supervisor.system.wakefulness import lifetime
from supervisor.workers.authority import Authority

_log = structlog.get_logger()

_ASK_S: Final = 5.0
_AGAIN_S: Final = 5.0
_OUTSIDE: Final = "its NATS servers do not let it in: it was removed, or they do not know it yet"


@dataclass(frozen=True)
class Ground:
    """What a node stands on: its models, their engines, devices, files, configuration; and how it plans and looks.

    loads_undecided: it loads its own models where the cluster cannot decide who does.
    """

    registry: Registry
    pool: Pool
    lookout: Lookout
    inflight: Inflight
    plan: Callable[[str], Awaitable[Mapping[str, Any]]]
    look: Callable[[], Awaitable[View]]
    taking: Taking
    hub: HubModels
    loads_undecided: Callable[[], bool]

    def budgets(self) -> Budgets | None:
        """Return the memory for models, as it was seen last."""
        return None if self.lookout.machine is None else self.lookout.sight.budgets


class Cluster:
    """The cluster as this node has it.

    Args:
        kept: its membership. ground: what it stands on.
        server: the NATS server that it runs; None: it runs none.

    Attributes:
        forwarding: for who relays.
    """

    def __init__(self, kept: Membership, ground: Ground, server: NatsServer | None) -> None:
        self._kept = kept
        self._ground = ground
        self._server = server
        self._draining = False
        self._unable: str | None = "it is not connected yet"
        self._starting: asyncio.Task[None] | None = None
        self._directory = Directory(kept.name)
        self._roll = Roll(kept, self._directory, server)
        tls = kept.dialling()
        self._store = NatsStore(kept.servers, kept.storing(), kept.own, self._connected)
        self._sharing = Sharing(kept, self._store, ground.taking, lambda: self._member.tell())
        told = Told(
            kept,
            ground.registry,
            ground.pool,
            ground.budgets,
            time.time(),
            lambda: self._draining,
            lifetime,
            lambda: self._sharing.state,
        )
        self._member = Member(
            self._directory, self._store, told, time.monotonic, self._roll.changed, self._sharing.begin
        )
        self._peers = Peers(tls)
        self._views = Views(self._directory, self._peers, ground.look, time.monotonic)
        self._tickets = Tickets()
        self._lending = Lending(ground.hub.cache)
        self._admission: Admission | None = None
        if kept.invites:
            self._admission = Admission(kept, Authority(kept.folder), self._roll.joined, self._member.admit)
        self.forwarding = Forwarding(
            directory=self._directory,
            routing=Routing(
                *(self._directory, self._member, told.running),
                self._plan,
                self._peers.offer,
                self._peers.reach,
                ground.loads_undecided,
                time.monotonic,
            ),
            peers=self._peers,
            registry=ground.registry,
            inflight=ground.inflight,
            tickets=self._tickets,
            clock=time.monotonic,
        )

        self._foretelling = Foretelling(
            directory=self._directory,
            running=told.running,
            meant=self.forwarding.meant,
            offer=self.forwarding.routing.offer,
            own=ground.plan,
            clock=time.monotonic,
        )

    def doorway(self, inside: ASGIApp, render_error: RenderError) -> Doorway:
        """Return the application of the port for other nodes. inside: the daemon's own, without its guard."""
        return Doorway(
            inside=inside,
            kept=self._kept,
            admission=self._admission,
            tickets=self._tickets,
            lending=self._lending,
            drain=self._drained_by,
            is_member=self._roll.has,
            look=self._ground.look,
            find=self._ground.registry.find,
            render_error=render_error,
        )

    def borrows(self, env: Mapping[str, str], records: Path) -> None:
        """Have downloads ask the other nodes before the hub."""
        hub, who = self._ground.hub, (self._kept, self._directory, time.monotonic, self._peers)
        hub.ask_first(Borrowing(*who, hub.cache.folder, env, records))

    # its life

    def start(self, held: HeldProcess | None = None) -> None:
        """Take part from now on. held: the NATS server of the image before."""
        self._starting = asyncio.ensure_future(self._start(held))

    async def _start(self, held: HeldProcess | None) -> None:
        while self._server is not None:
            try:
                await self._server.start(held)
                break
            except SupervisorError as error:
                self._unable, held = error.message, None
                _log.error("cluster_server", reason=error.message)
                await asyncio.sleep(_AGAIN_S)
        await self._store.connect()
        self._unable = None
        await self._ground.lookout.look(self._ground.pool)
        self._sharing.start()
        self._member.start()
        await hang_up_on_silent(self._directory, self._drop, time.monotonic)

    async def _drop(self, seen: Seen) -> None:
        await self._peers.drop(seen.node)

    def held(self) -> HeldProcess | None:
        """Return what the next image of this process needs to adopt the NATS server; None where there is none."""
        return None if self._server is None else self._server.held()

    def disown(self) -> None:
        """In a copy of this process: say and hear nothing of the cluster any more, and place nothing."""
        self._directory.disconnect()
        if self._starting is not None:
            self._starting.cancel()
        self._sharing.disown()
        self._member.disown()
        self._store.disown()
        self._lending.disown()
        if self._server is not None:
            self._server.disown()

    async def close(self) -> None:
        """Give up what this node has claimed, and end the connections."""
        if self._starting is not None:
            self._starting.cancel()
        self._sharing.disown()
        if self._directory.connected:
            await self._member.leave()
        self._lending.close()
        await self._peers.close()
        await self._store.close()
        if self._server is not None:
            await self._server.close()

    def _connected(self, now: bool) -> None:
        self._unable = None if now else "its NATS servers cannot be reached"
        self._member.connected(now=now)

    def heard(self, _event: str, model: str, *_more: object) -> None:
        """Hear what happens to an engine."""
        self._member.loads(model)

    def reloaded(self) -> None:
        """Hear that this node's own configuration was taken over."""
        self._sharing.again()

    # what is asked

    def status(self) -> ClusterStatus:
        """See `Clustered`."""
        now = time.monotonic()
        return ClusterStatus(
            node=self._kept.name,
            connected=self._directory.connected,
            unable=None if self._directory.connected else self._why_unable,
            servers=[f"{one.host}:{one.port}" for one in self._kept.servers],
            serves=self._server is not None,
            config_version=self._sharing.number,
            config_problem=self._sharing.problem or None,
            nodes=[self._shown(seen, now) for seen in sorted(self._directory, key=lambda one: one.node.name)],
        )

    @property
    def _why_unable(self) -> str | None:
        if self._store.refused:
            return _OUTSIDE
        unready = self._member.unready
        return self._unable or (f"its NATS servers do not answer as they should: {unready}" if unready else None)

    def figures(self) -> ClusterFigures:
        """Return what there is to be counted."""
        status = self.status()
        others = {one.name for one in status.nodes if not one.here}
        return ClusterFigures(status, self.forwarding.counts.of(others))

    async def nodes(self) -> NodesNow:
        """See `Clustered`."""
        viewed = await self._views.all()
        status = self.status()
        first = sorted(status.nodes, key=lambda one: not one.here)
        shown = [node_now(one, viewed.get(one.name)) for one in first]
        return NodesNow(status.node, connected=status.connected, unable=status.unable, nodes=shown)

    async def plan(self, target: str) -> ClusterPlan:
        """See `Clustered`."""
        return await self._foretelling.plan(target)

    def versions(self) -> Versions:
        """See `Clustered`."""
        return self._sharing

    def models(self) -> Mapping[str, Mapping[str, str]]:
        """See `Clustered`."""
        found: dict[str, dict[str, str]] = {}
        now = time.monotonic()
        for seen in self._directory:
            if seen.node.name != self._kept.name and self._directory.alive(seen, now):
                for model in seen.node.models:
                    running = seen.runs(model)
                    found.setdefault(model, {})[seen.node.name] = "unloaded" if running is None else running.state
        return found

    def invite(self, host: str | None, seconds: float) -> Invited:
        """See `Clustered`."""
        if self._admission is None:
            raise ClusterRefused("This node lets nobody in. Ask on the node that began the cluster.")
        until = time.time() + seconds
        try:
            secret = self._admission.members.invite(until, time.time())
        except ValueError as error:
            raise ClusterRefused(f"No further invitation is made: {error}.") from None
        fingerprint = self._admission.authority.fingerprint
        return Invited(encode(JoinToken(host or self._kept.host, self._kept.port, fingerprint, secret)), until)

    async def drain(self, node: str, *, on: bool) -> NodeStatus:
        """See `Clustered`."""
        seen = self._directory.node(node)
        if seen is None:
            raise NodeNotFound(f"The cluster has no node '{node}'. `supervisor cluster nodes` lists them.")
        if node == self._kept.name:
            self.set_draining(on=on)
        else:
            client = self._peers.client(seen.node)
            try:
                await self._peers.ask(client, "POST", "/cluster/drain", {"on": on}, _ASK_S)
            except (PeerUnreachable, Refused) as error:
                raise NodeLost(f"The node {node} cannot be told ({error}). Try again.") from None
            if seen.load is not None:
                await self._heard_again(node, seen.load.number)
        return self._shown(self._directory.node(node) or seen, time.monotonic())

    def set_draining(self, *, on: bool) -> None:
        """Have this node take nothing new, or again. What it has loaded, or loads, is unloaded after its requests."""
        self._draining = on
        if on:
            for model in self._ground.pool.loaded():
                self._ground.pool.ask_unload(model, serves_waiting=True)
        self._ground.pool.changed()

    async def remove(self, node: str) -> None:
        """See `Clustered`."""
        if self._directory.node(node) is None:
            raise NodeNotFound(f"The cluster has no node '{node}'. `supervisor cluster nodes` lists them.")
        try:
            await self._member.remove(node)
        except StoreUnavailable as error:
            raise _untold(error) from None

    async def leave(self) -> None:
        """See `Clustered`."""
        self._sharing.disown()
        await self._member.leave()
        try:
            await self._member.remove(self._kept.name)
        except StoreUnavailable as error:
            self._sharing.start()
            self._member.start()
            raise _untold(error) from None
        await asyncio.to_thread(forget, self._kept)

    async def _heard_again(self, node: str, number: int) -> None:
        """Wait until a node has told its next load."""
        with self._member.changes.watch() as changed:
            try:
                async with asyncio.timeout(_ASK_S):
                    while (seen := self._directory.node(node)) and seen.load and seen.load.number <= number:
                        await changed.wait()
                        changed.clear()
            except TimeoutError:
                return

    def _drained_by(self, on: bool) -> None:
        self.set_draining(on=on)

    async def _plan(self, model: str) -> Offer:
        return offer_of(self._kept.name, await self._ground.plan(model))

    def _shown(self, seen: Seen, now: float) -> NodeStatus:
        told = status_of(self._directory, seen, now)
        if not told.here:
            return told
        version, problem = self._sharing.state
        state = "draining" if self._draining else "ready"
        return replace(told, state=state, config_version=version, config_problem=problem or None)


def cluster_of(kept: Membership, ground: Ground, env: Mapping[str, str], records: Path) -> Cluster:
    """Return this node's part, whose files the hub's downloads ask for first. Raises OSError.

    records: folder for the records of processes.
    """
    found = Cluster(kept, ground, None if kept.serves is None else NatsServer(kept, env, records))
    found.borrows(env, records)
    return found


def _untold(error: StoreUnavailable) -> ClusterUnavailable:
    return ClusterUnavailable(f"The cluster cannot be told: {error}. Try again.", retry_after=_AGAIN_S)
