"""All nodes at once: each is asked what it does now, and none that is slow to say so holds up the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.cluster.peers import Peers, Refused
from supervisor.core.cluster.directory import Directory, Seen
from supervisor.core.cluster.messages import NotUnderstood
from supervisor.core.cluster.views import DeviceView, ModelView, View, view_of
from supervisor.errors import RouteNotFound
from supervisor.service.clusters import ModelError, ModelNow, NodeNow, NodeStatus
from supervisor.system.shared import Shared

VIEW: Final = "/cluster/view"
"""Where a node is asked."""

_ASK_S: Final = 2.0
_AWAY: Final = "it is away"
_NEW: Final = "it has just come"
_SLOW: Final = "its devices take long to be looked at"
_LATE: Final = "it has not answered in time"


@dataclass(frozen=True)
class Viewed:
    """What a node has said of itself; None: nothing, and why."""

    view: View | None
    why: str | None = None


@dataclass(frozen=True)
class Views:
    """Asks the nodes.

    Attributes:
        own: looks at this node.
        clock: seconds of a monotonic clock.
        patience: seconds that a node has to answer; this one, too, whose devices may take longer.
    """

    directory: Directory
    peers: Peers
    own: Callable[[], Awaitable[View]]
    clock: Callable[[], float]
    patience: float = _ASK_S
    _looking: set[asyncio.Task[View]] = field(default_factory=set)
    _together: Shared[Mapping[str, Viewed]] = field(default_factory=Shared)
    _late: dict[str, tuple[float, int]] = field(default_factory=dict)

    async def all(self) -> Mapping[str, Viewed]:
        """Return what every node says, by its name. Takes no longer than one node may take."""
        return await self._together.get(self._asked)

    async def _asked(self) -> Mapping[str, Viewed]:
        nodes = tuple(self.directory)
        said = await asyncio.gather(*map(self._viewed, nodes))
        names = [seen.node.name for seen in nodes]
        for name in self._late.keys() - set(names):
            del self._late[name]
        return dict(zip(names, said, strict=True))

    async def _viewed(self, seen: Seen) -> Viewed:
        name = seen.node.name
        if name == self.directory.me:
            return await self._here()
        if not self.directory.alive(seen, self.clock()):
            return Viewed(None, _AWAY)
        if self._late.get(name) == _word(seen):
            return Viewed(None, _LATE)  # it has said nothing since, so it hangs, and everybody would wait again
        self._late.pop(name, None)
        client = self.peers.client(seen.node)
        before = _word(seen)
        try:
            return Viewed(view_of(await self.peers.ask(client, "GET", VIEW, None, self.patience)))
        except PeerUnreachable as error:
            self._late[name] = before
            return Viewed(None, str(error))
        except Refused as error:
            older = error.code == RouteNotFound.code
            return Viewed(None, "it is of a version that cannot be asked" if older else f"it refuses: {error}")
        except NotUnderstood as error:
            return Viewed(None, f"its answer is not understood: {error}")

    async def _here(self) -> Viewed:
        """Look at this node. A look that takes too long goes on, and serves whoever asks next."""
        if not self._looking:
            task = asyncio.ensure_future(self.own())
            self._looking.add(task)
            task.add_done_callback(self._over)
        (task,) = self._looking
        done, _ = await asyncio.wait({task}, timeout=self.patience)
        return Viewed(task.result()) if done else Viewed(None, _SLOW)

    def _over(self, task: asyncio.Task[View]) -> None:
        self._looking.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; perhaps nobody does any more


def node_now(status: NodeStatus, viewed: Viewed | None) -> NodeNow:
    """Return a node as it is shown: as it says itself, or else as it was last heard. None: it has just come."""
    viewed, at = viewed or Viewed(None, _NEW), time.time()
    view = viewed.view or _told(status)
    return NodeNow(
        name=status.name,
        state=status.state,
        address=status.address,
        program=status.program,
        here=status.here,
        asked=viewed.view is not None,
        why=viewed.why,
        heard_s=status.heard_s,
        free_bytes=status.free_bytes,
        requests=None if viewed.view is None else view.requests,
        devices=view.devices,
        models=[_model(one, at) for one in view.models],
    )


def _told(status: NodeStatus) -> View:
    """Return what is known of a node by what it has told; of one that is away, nothing of models."""
    models = status.models if status.state != "away" else ()
    return View(
        tuple(DeviceView(one.name, one.total_bytes) for one in status.devices),
        tuple(ModelView(one.id, one.state, n_slots=one.slots, leases=one.busy, waiting=one.waiting) for one in models),
    )


def _model(one: ModelView, now: float) -> ModelNow:
    return ModelNow(
        id=one.id,
        state=one.state,
        stage=one.stage,
        progress=one.progress,
        pid=one.pid,
        n_ctx=one.n_ctx,
        n_slots=one.n_slots,
        leases=one.leases,
        waiting=one.waiting,
        rss_bytes=one.rss_bytes,
        pinned=one.pinned,
        loaded_at=None if one.loaded_s is None else now - one.loaded_s,
        expires_at=None if one.leaves_s is None else now + one.leaves_s,
        failed_at=None if one.failed_s is None else now - one.failed_s,
        error=None if one.code is None else ModelError(one.code),
    )


def _word(seen: Seen) -> tuple[float, int]:
    """Return which of its words was the last that was heard of a node."""
    return (0.0, 0) if seen.load is None else (seen.load.started_at, seen.load.number)
