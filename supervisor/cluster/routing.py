"""Which node answers a request for a model: the one that has it, or the one that comes to have it by a claim.

The choice itself is made in `core/cluster`. Here it is followed: offers are asked for, a claim is made, and what other
nodes are about to do is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

import structlog

from supervisor.cluster.member import Member
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.cluster.store import StoreUnavailable
from supervisor.cluster.waiting import woken
from supervisor.core.cluster.choice import Go, Nowhere, Place, Spill, Wait, Wanted, choose
from supervisor.core.cluster.directory import Claimed, Directory, Seen
from supervisor.core.cluster.messages import Running
from supervisor.core.cluster.placing import Offer, best
from supervisor.errors import ClusterUnavailable, ModelDoesNotFit, ModelMoved, NodeLost, SupervisorError

_log = structlog.get_logger()

_MOST_TRIES: Final = 4
_RETRY_S: Final = 5.0
_LOOK_S: Final = 1.0
_FULL_S: Final = 10.0  # for which no node is asked again for free room

Plan = Callable[[str], Awaitable[Offer]]
"""Says whether a model fits on this node. Raises SupervisorError."""

Ask = Callable[[Seen, str], Awaitable[Offer]]
"""Asks another node whether a model fits there. Raises PeerUnreachable, SupervisorError."""

Reach = Callable[[Seen], Awaitable[None]]
"""Sees whether another node can be reached. Raises PeerUnreachable."""


@dataclass(frozen=True)
class Routing:
    """The way of requests.

    Attributes:
        directory, member: who is there, and who may load what.
        running: what runs of a model on this node.
        plan, ask: this node's own offer, and those of others.
        reach: to see whether another one is there.
        loads_undecided: this node loads its own models where the cluster cannot decide who does.
        clock: seconds of a monotonic clock.
    """

    directory: Directory
    member: Member
    running: Callable[[str], Running | None]
    plan: Plan
    ask: Ask
    reach: Reach
    loads_undecided: Callable[[], bool]
    clock: Callable[[], float]
    _placing: dict[str, asyncio.Task[str | None]] = field(default_factory=dict)
    _probes: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _full: dict[str, float] = field(default_factory=dict)  # when no node had free room for another copy

    async def answered(
        self, model: str, affinity: Callable[[], str | None], send: Callable[[Seen], Awaitable[bool]]
    ) -> bool:
        """Have another node answer, and return True; False where this one is to.

        affinity: of the conversation. send: has a node answer; False where another one may be asked.
        Raises ClusterUnavailable, NodeLost, ModelDoesNotFit.
        """
        tried: set[str] = set()
        for _ in range(_MOST_TRIES):
            node = await self._node(model, affinity() if self._several(model) else None, tried)
            if node is None:
                return False
            if await send(node):
                return True
            tried.add(node.node.name)
        raise ClusterUnavailable(
            f"No node could answer for '{model}': {len(tried)} were tried. Repeat the request.", retry_after=_RETRY_S
        )

    async def make_sure(self, model: str, replica: int) -> None:
        """Have this node be one that may load a model, before it loads it for another node.

        replica: the copy that it has been chosen for.
        Raises ModelMoved where that is another node's, ClusterUnavailable.
        """
        with self.member.changes.watch() as changed:
            while self._probe_untold():
                changed.clear()
                await woken(changed, _LOOK_S)
        now = self.clock()
        if self.running(model) is None and self.directory.claim(model, self.directory.me, now) is None:
            if not self.directory.connected:
                raise _unloadable(model, f"the node {self.directory.me} has no connection to the cluster")
            others = [seen.node.name for seen in self.directory.having(model, now)]
            node = others[0] if others and not replica else await self._claimed(model, self.directory.me, replica)
            if node != self.directory.me:
                raise ModelMoved(f"'{model}' is for the node {node} to load. Repeat the request there.")

    def replica(self, model: str, node: str) -> int | None:
        """Return which copy of a model a node has claimed, as far as is known here."""
        claim = self.directory.claim(model, node, self.clock())
        return None if claim is None else claim.claim.replica

    def runs_elsewhere(self, model: str) -> bool:
        """Return whether other nodes alone have the model loaded."""
        return self.running(model) is None and bool(self.directory.running(model, self.clock()))

    def _several(self, model: str) -> bool:
        return len(self.directory.running(model, self.clock())) > 1

    async def _node(self, model: str, affinity: str | None, tried: set[str]) -> Seen | None:
        """Return the node that is to answer; None: this one. Waits while somebody else is about to know."""
        try:
            return await self._decided(model, affinity, tried)
        except ClusterUnavailable:
            able = {seen.node.name for seen in self.directory.knowing(model, self.clock())} - tried
            if self.directory.me not in able or not self.loads_undecided():
                raise
            _log.warning("model_loaded_undecided", model=model)
            return None

    async def _decided(self, model: str, affinity: str | None, tried: set[str]) -> Seen | None:
        """Return the node that is to answer; None: this one. Raises ClusterUnavailable where that is not decided."""
        placed = 0
        with self.member.changes.watch() as changed:
            while placed < _MOST_TRIES:
                changed.clear()
                now = self.clock()
                spills = model not in self._placing and now - self._full.get(model, -_FULL_S) >= _FULL_S
                wanted = Wanted(model, affinity, frozenset(tried), self.running(model), spills)
                match choose(self.directory, wanted, now):
                    case Go(name):
                        return self._other(name)
                    case Spill(back, place):
                        return self._other(await self._spilled(model, place) or back)
                    case Place() as place:
                        await self._placed(model, place)
                        placed += 1
                    case Wait():
                        self._probe_untold()
                        await woken(changed, _LOOK_S)
                    case Nowhere(why):
                        raise _unloadable(model, why)
        raise _unloadable(model, f"it was claimed {placed} times, and no claim of it lasts")

    def _probe_untold(self) -> bool:
        """Return whether some have yet to tell what they do; each is looked for once, as it may have ended."""
        untold = self.directory.untold(self.clock())
        for name in self._probes.keys() - untold:
            del self._probes[name]
        for name in sorted(untold - self._probes.keys()):
            self._probes[name] = asyncio.ensure_future(self._probe(name))
            self._probes[name].add_done_callback(lambda _: self.member.changes.tell())
        return bool(untold)

    async def _probe(self, name: str) -> None:
        """Note a node as gone if nobody listens there."""
        if (seen := self.directory.node(name)) is not None:
            try:
                await self.reach(seen)
            except PeerUnreachable as error:
                if error.refused:
                    self.directory.unreachable(name, self.clock(), gone=True)

    def _other(self, name: str) -> Seen | None:
        return None if name == self.directory.me else self.directory.node(name)

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
        task.add_done_callback(lambda done: self._over(model, done))
        return task

    def _over(self, model: str, done: asyncio.Task[str | None]) -> None:
        self._placing.pop(model, None)
        if not done.cancelled():
            done.exception()  # whoever waited has it; all of them may have left

    async def _place(self, model: str, place: Place) -> str:
        answers = await self._offers(model, place)
        found = best((one for one in answers if isinstance(one, Offer)), place.nodes)
        if found is None:
            refusals = [one for one in answers if isinstance(one, SupervisorError)]
            raise refusals[0] if refusals else ModelDoesNotFit(f"'{model}' fits on no node of the cluster now.")
        node = await self._claimed(model, found.node, place.replica, place.over)
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

    async def _claimed(self, model: str, node: str, replica: int, over: Claimed | None = None) -> str:
        """Claim a model for a node, and return the node that has it then."""
        try:
            return await self.member.claim(model, node, replica, over)
        except StoreUnavailable as error:
            raise ClusterUnavailable(
                f"The cluster cannot decide who loads '{model}' now ({error}). Repeat the request in a moment.",
                retry_after=_RETRY_S,
            ) from None

    async def _offers(self, model: str, place: Place) -> list[Offer | SupervisorError]:
        return await asyncio.gather(*(self.offer(model, name) for name in place.nodes))

    async def offer(self, model: str, name: str) -> Offer | SupervisorError:
        """Return what a node says of loading a model."""
        try:
            if name == self.directory.me:
                return await self.plan(model)
            seen = self.directory.node(name)
            return NodeLost(f"The node {name} has left.") if seen is None else await self.ask(seen, model)
        except PeerUnreachable as error:
            self.directory.unreachable(name, self.clock(), gone=error.refused)
            return NodeLost(f"The node {name} cannot be reached ({error}). Repeat the request.")
        except SupervisorError as error:
            return error


def _unloadable(model: str, why: str) -> ClusterUnavailable:
    return ClusterUnavailable(
        f"'{model}' cannot be loaded now: {why}. Repeat the request in a moment.", retry_after=_RETRY_S
    )
