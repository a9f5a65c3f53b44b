"""Which node answers a request for a model: the one that has it, or the one that comes to have it by a claim.

The choice itself is made in `core/cluster`. Here it is followed: offers are asked for, a claim is made, and what other
nodes are about to do is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from supervisor.cluster.member import Member, woken
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.cluster.store import StoreUnavailable
from supervisor.core.cluster.choice import Go, Nowhere, Place, Wait, Wanted, choose
from supervisor.core.cluster.directory import Claimed, Directory, Seen
from supervisor.core.cluster.messages import Running
from supervisor.core.cluster.placing import Offer, best
from supervisor.errors import ClusterUnavailable, ModelDoesNotFit, ModelMoved, NodeLost, SupervisorError

_log = structlog.get_logger()

_MOST_TRIES: Final = 4
_RETRY_S: Final = 5.0
_LOOK_S: Final = 1.0

Plan = Callable[[str], Awaitable[Offer]]
"""Says whether a model fits on this node. Raises SupervisorError."""

Ask = Callable[[Seen, str], Awaitable[Offer]]
"""Asks another node whether a model fits there. Raises PeerUnreachable, SupervisorError."""


@dataclass(frozen=True)
class Routing:
    """The way of requests.

    Attributes:
        directory, member: who is there, and who may load what.
        running: what runs of a model on this node.
        plan, ask: this node's own offer, and those of others.
        clock: seconds of a monotonic clock.
    """

    directory: Directory
    member: Member
    running: Callable[[str], Running | None]
    plan: Plan
    ask: Ask
    clock: Callable[[], float]
    _placing: dict[str, asyncio.Task[None]] = field(default_factory=dict)

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

    async def make_sure(self, model: str) -> None:
        """Have this node be the one that may load a model, before it loads it for another node.

        Raises ModelMoved where another node has claimed it, ClusterUnavailable.
        """
        claim = self.directory.claim(model, self.clock())
        if self.running(model) is None and (claim is None or claim.claim.node != self.directory.me):
            node = await self._claimed(model, self.directory.me)
            if node != self.directory.me:
                raise ModelMoved(f"'{model}' is for the node {node} to load. Repeat the request there.")

    def runs_elsewhere(self, model: str) -> bool:
        """Return whether other nodes alone have the model loaded."""
        return self.running(model) is None and bool(self.directory.running(model, self.clock()))

    def _several(self, model: str) -> bool:
        return len(self.directory.running(model, self.clock())) > 1

    async def _node(self, model: str, affinity: str | None, tried: set[str]) -> Seen | None:
        """Return the node that is to answer; None: this one. Waits while somebody else is about to know."""
        with self.member.changes.watch() as changed:
            while True:
                changed.clear()
                wanted = Wanted(model, affinity, frozenset(tried), self.running(model))
                match choose(self.directory, wanted, self.clock()):
                    case Go(name):
                        return None if name == self.directory.me else self.directory.node(name)
                    case Place(nodes, over):
                        await self._placed(model, Place(nodes, over))
                    case Wait():
                        await woken(changed, _LOOK_S)
                    case Nowhere(why):
                        raise ClusterUnavailable(
                            f"'{model}' cannot be loaded now: {why}. Repeat the request in a moment.",
                            retry_after=_RETRY_S,
                        )

    async def _placed(self, model: str, place: Place) -> None:
        """Have a node claim the model. All who want it here at the same time wait for one placement."""
        task = self._placing.get(model)
        if task is None:
            task = self._placing[model] = asyncio.ensure_future(self._place(model, place))
            task.add_done_callback(lambda done: self._over(model, done))
        await asyncio.shield(task)

    def _over(self, model: str, done: asyncio.Task[None]) -> None:
        self._placing.pop(model, None)
        if not done.cancelled():
            done.exception()  # whoever waited has it; all of them may have left

    async def _place(self, model: str, place: Place) -> None:
        answers = await asyncio.gather(*(self._offer(model, name) for name in place.nodes))
        found = best((one for one in answers if isinstance(one, Offer)), place.nodes)
        if found is None:
            refusals = [one for one in answers if isinstance(one, SupervisorError)]
            raise refusals[0] if refusals else ModelDoesNotFit(f"'{model}' fits on no node of the cluster now.")
        node = await self._claimed(model, found.node, place.over)
        _log.info("model_placed", model=model, node=node)

    async def _claimed(self, model: str, node: str, over: Claimed | None = None) -> str:
        """Claim a model for a node, and return the node that has it then."""
        try:
            return await self.member.claim(model, node, over)
        except StoreUnavailable as error:
            raise ClusterUnavailable(
                f"The cluster cannot decide who loads '{model}' now ({error}). Repeat the request in a moment.",
                retry_after=_RETRY_S,
            ) from None

    async def _offer(self, model: str, name: str) -> Offer | SupervisorError:
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
