"""A node: what a daemon has of a cluster, on engines that are played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from supervisor.cluster.kept import Membership
from supervisor.cluster.member import Member
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.cluster.routing import Routing
from supervisor.cluster.silence import hang_up_on_silent
from supervisor.cluster.store import Store
from supervisor.cluster.told import Told
from supervisor.core.cluster.directory import Directory, Seen
from supervisor.core.cluster.placing import Offer
from supervisor.core.devices import Budget, Budgets
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.plan import DoesNotFit
from supervisor.core.schedule import Scheduler
from supervisor.core.schedule.events import EngineId, Failure, ModelId, Plan
from supervisor.errors import ModelMoved, NodeLost
from supervisor.pool.living import Living
from supervisor.pool.pool import Pool, PoolEdges, PoolLimits
from tests.cluster.simulated.engine import PlayedEngine
from tests.cluster.simulated.network import Network
from tests.core.schedule.toy import ToyPlanner

DEVICE: Final = "GPU0"


class Connected(Store, Protocol):
    """A store with a connection."""

    async def connect(self) -> None:
        """Connect, trying until it can be done."""


@dataclass(frozen=True)
class Kind:
    """What all nodes are alike in.

    Attributes:
        sizes: bytes, by model; every node knows them all. room: bytes of its device.
        slots, load_s: of an engine.
        first_s, rest_s: seconds to the first byte of an answer, and from there to its end.
    """

    sizes: Mapping[str, int]
    room: int
    slots: int = 4
    load_s: float = 5.0
    first_s: float = 0.2
    rest_s: float = 2.0


@dataclass
class Edges:
    """The world around a node.

    Attributes:
        network: the way to others. nodes: all of them, by name; also those that are no more.
        lives: is told when an engine starts and when it has ended: node, model, whether it lives.
        clock: seconds of its monotonic clock. started_at: by its wall clock.
    """

    network: Network
    nodes: Mapping[str, SimNode]
    lives: Callable[[str, str, bool], None]
    clock: Callable[[], float]
    started_at: float = 1e9


class SimNode:
    """A node. store: makes its store; is told what has to hear of its connection."""

    def __init__(
        self, name: str, kind: Kind, edges: Edges, store: Callable[[Callable[[bool], None]], Connected]
    ) -> None:
        self.name = name
        self._kind = kind
        self._edges = edges
        self.directory = Directory(name)
        self._planner = ToyPlanner({DEVICE: kind.room}, kind.sizes)
        self.pool = Pool(Scheduler(self._planner), self._pool_edges(), PoolLimits(probe=1e6))
        registry = Registry(ModelEntry(model, Source.FILE, f"/{model}.gguf") for model in kind.sizes)
        kept = Membership(Path(), name, "1", "127.0.0.1", 1, ())
        self.told = Told(
            *(kept, registry, self.pool, self._budgets), edges.started_at, lambda: False, edges.clock, lambda: (0, "")
        )
        self.store: Connected = store(lambda now: self.member.connected(now=now))
        self.member = Member(self.directory, self.store, self.told, edges.clock, lambda name: None, _nothing)
        self.routing = Routing(
            *(self.directory, self.member, self.told.running),
            *(self._plan, self._ask_for_plan, self._reach),
            lambda: False,
            edges.clock,
        )
        self._life: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Have its process run."""
        self._life = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        self._edges.network.begin(self.name)
        async with self.pool:
            try:
                await self.store.connect()
                self.member.start()
                await hang_up_on_silent(self.directory, self._drop, self._edges.clock)
            finally:
                self.member.disown()

    async def die(self, *, silently: bool) -> None:
        """End its process at once. silently: with its host."""
        self._edges.network.end(self.name, silently=silently)
        self.ended.set_result(None)
        assert self._life is not None
        self._life.cancel()
        await asyncio.wait({self._life})

    # what clients ask

    async def ask(self, model: str) -> None:
        """Answer a client's request, here or elsewhere. Raises SupervisorError."""

        async def send(seen: Seen) -> bool:
            return await self._sent(seen, model)

        if not await self.routing.answered(model, lambda: None, send):
            await self.answer(model, lambda: None)

    async def answer(self, model: str, began: Callable[[], None]) -> None:
        """Answer a request with an engine of this node. began: is told of the first byte. Raises SupervisorError."""
        lease = await self.pool.acquire(model)
        try:
            await asyncio.sleep(self._kind.first_s)
            began()
            await asyncio.sleep(self._kind.rest_s)
        finally:
            lease.release()

    async def _sent(self, seen: Seen, model: str) -> bool:
        """Have another node answer; False where one more may be asked, as the client has had nothing yet."""
        name, begun = seen.node.name, asyncio.Event()
        replica = self.routing.replica(model, name) or 0

        async def serve() -> None:
            there = self._edges.nodes[name]
            await there.routing.make_sure(model, replica)
            await there.answer(model, begun.set)

        try:
            await self._edges.network.call(self.name, name, serve)
        except PeerUnreachable as error:
            self.directory.unreachable(name, self._edges.clock(), gone=error.refused)
            if begun.is_set():
                raise NodeLost(f"The node {name} was lost while it was answering ({error}).") from None
            return False
        except ModelMoved:
            return False
        return True

    # what it stands on

    async def _plan(self, model: str) -> Offer:
        found = self._planner(model, self.pool.residents())
        if isinstance(found, DoesNotFit):
            return Offer(self.name, fits=False, later=found.later)
        return Offer(self.name, fits=True, evicts=len(found.evict))

    async def _ask_for_plan(self, seen: Seen, model: str) -> Offer:
        there = self._edges.nodes[seen.node.name]
        return await self._edges.network.call(self.name, there.name, lambda: there._plan(model))

    async def _reach(self, seen: Seen) -> None:
        await self._edges.network.call(self.name, seen.node.name, _nothing)

    async def _drop(self, seen: Seen) -> None:
        await self._edges.network.drop(self.name, seen.node.name)

    def _budgets(self) -> Budgets:
        device = Budget(DEVICE, "played", self._kind.room, self._kind.room)
        return Budgets((device,), Budget("CPU", "cpu", 0, 0))

    def _pool_edges(self) -> PoolEdges:
        async def prepare(model: ModelId, plan: Plan) -> PlayedEngine:
            kind = self._kind
            return PlayedEngine(kind.slots, kind.load_s, lambda lives: self._edges.lives(self.name, model, lives))

        async def read(model: ModelId, living: Living) -> None:
            return

        async def see_room(living: Living) -> Mapping[str, int]:
            return dict(self._planner.room)

        def observe(event: str, model: ModelId, engine: EngineId, failure: Failure | None) -> None:
            self.member.loads(model)

        return PoolEdges(*(prepare, read, see_room), self._edges.clock, observe)


async def _nothing() -> None:
    return
