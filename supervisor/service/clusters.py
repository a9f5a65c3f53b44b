"""The cluster that this daemon is a part of, as it is shown and changed; a daemon alone is in none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from supervisor.core.cluster.views import DeviceView, Holding
from supervisor.errors import ClusterOff
from supervisor.service.versions import Versions


@dataclass(frozen=True)
class NodeModel:
    """A model that has an engine on a node.

    Attributes:
        state: `loading` or `ready`.
        busy, waiting: requests.
        wait_s: seconds that a request which came now would wait. load_s: seconds that a load takes.
    """

    id: str
    state: str
    slots: int
    busy: int
    waiting: int
    wait_s: float
    load_s: float


@dataclass(frozen=True)
class NodeDevice:
    """A device of a node."""

    name: str
    total_bytes: int


@dataclass(frozen=True)
class NodeStatus:
    """A node.

    Attributes:
        state: `ready`, `draining` or `away`.
        address: where other nodes reach it.
        here: it is the one that tells.
        free_bytes: memory that models could have; null while nothing was heard of it.
        heard_s: seconds since it told something; null for the one that tells, and where it has told nothing.
        claims: models that it has the right to load.
        config_version: of the cluster's configuration in force there; 0: none is.
        config_problem: why it has not taken a newer one over; null: there is none.
    """

    name: str
    state: str
    address: str
    program: str
    here: bool
    free_bytes: int | None
    heard_s: float | None
    devices: Sequence[NodeDevice]
    models: Sequence[NodeModel]
    claims: Sequence[str]
    config_version: int
    config_problem: str | None


@dataclass(frozen=True)
class ClusterStatus:
    """The cluster. node: the one that tells. connected: it hears the others. unable: why it does not.

    servers: the cluster's NATS servers. serves: one of them is a process of this daemon.
    config_version, config_problem: of the one that tells, as of a node.
    """

    node: str
    connected: bool
    unable: str | None
    servers: Sequence[str]
    serves: bool
    config_version: int
    config_problem: str | None
    nodes: Sequence[NodeStatus]

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        return asdict(self)


@dataclass(frozen=True)
class Forwarded:
    """Requests that were passed on to a node. failures: of which it broke off the answer, or could not be reached."""

    requests: int
    failures: int


@dataclass(frozen=True)
class ClusterFigures:
    """What is counted, and what is known of the nodes. forwarded: for each other node."""

    status: ClusterStatus
    forwarded: Mapping[str, Forwarded]


@dataclass(frozen=True)
class ModelError:
    """Why a model could not be loaded; its node says more."""

    code: str


@dataclass(frozen=True)
class ModelNow:
    """A model that has an engine on a node, or had one that failed; fields are those of a model's status."""

    id: str
    state: str
    stage: str | None
    progress: float | None
    pid: int | None
    n_ctx: int | None
    n_slots: int | None
    leases: int
    waiting: int
    rss_bytes: int | None
    pinned: bool
    loaded_at: float | None
    expires_at: float | None
    failed_at: float | None
    error: ModelError | None


@dataclass(frozen=True)
class NodeNow:
    """A node, and what is on it.

    Attributes:
        asked: it has said this itself just now. If not, `why` says so, models are those that it last told, and of its
            devices only names and sizes are known.
        free_bytes: memory that models could have, of all its devices, as it last told.
        requests: those that it answers, or that wait there.
    """

    name: str
    state: str
    address: str
    program: str
    here: bool
    asked: bool
    why: str | None
    heard_s: float | None
    free_bytes: int | None
    requests: int | None
    devices: Sequence[DeviceView]
    models: Sequence[ModelNow]


@dataclass(frozen=True)
class NodesNow:
    """All nodes, the one that tells first. node: its name; null, and no nodes, where the daemon is in no cluster."""

    node: str | None
    connected: bool
    unable: str | None
    nodes: Sequence[NodeNow]

    def limited(self, sees: Callable[[str], bool]) -> NodesNow:
        """Return the same for who sees only these models: what others hold has no name."""
        return replace(self, nodes=[_limited(one, sees) for one in self.nodes])

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        return asdict(self)


def _limited(node: NodeNow, sees: Callable[[str], bool]) -> NodeNow:
    devices = [replace(one, held=tuple(_unnamed(held, sees) for held in one.held)) for one in node.devices]
    return replace(node, devices=devices, models=[one for one in node.models if sees(one.id)])


def _unnamed(held: Holding, sees: Callable[[str], bool]) -> Holding:
    return held if held.model is not None and sees(held.model) else replace(held, model=None)


@dataclass(frozen=True)
class OfferShown:
    """What a node says of loading a model.

    Attributes:
        here: it is the node that was asked for all of them. chosen: it is the one that would answer.
        fits: null where it has not said; `why` says so.
        evict_models: those that would have to leave, or that are in the way.
        request_ctx: tokens of one request. on_disk: nothing has to be downloaded.
    """

    node: str
    here: bool
    chosen: bool
    fits: bool | None
    evict_models: Sequence[str]
    tokens_per_second: float | None
    request_ctx: int | None
    on_disk: bool | None
    why: str | None


@dataclass(frozen=True)
class ClusterPlan:
    """Where a request for a model would go. node: None: nowhere. why: what is said of that node.

    offers: of the nodes that were asked. plan: that of the node, as `POST /api/v1/plan` answers it there. foreign: the
    plan is of another node, and nobody has looked at it yet.
    """

    node: str | None
    why: str
    offers: Sequence[OfferShown]
    plan: Mapping[str, Any] | None
    foreign: bool = False


@dataclass(frozen=True)
class Invited:
    """An invitation. token: of use once. expires_at: seconds since 1970."""

    token: str
    expires_at: float


class Clustered(Protocol):
    """What is asked of the cluster. Every call raises ClusterOff where there is none."""

    def status(self) -> ClusterStatus:
        """Return who is there, and what runs where."""

    async def nodes(self) -> NodesNow:
        """Ask every node what it does now. Empty in no cluster."""

    async def plan(self, target: str) -> ClusterPlan:
        """Return where a request for a load target would go, and why. Raises SupervisorError as a plan does."""

    def models(self) -> Mapping[str, Mapping[str, str]]:
        """Return the models of other nodes, by id: the state on each node that knows them. Empty in no cluster."""

    def versions(self) -> Versions:
        """Return the configuration that the nodes share."""

    def invite(self, host: str | None, seconds: float) -> Invited:
        """Make an invitation. Raises ClusterRefused where this node has not got the authority's key."""

    async def drain(self, node: str, *, on: bool) -> NodeStatus:
        """Have a node take nothing new, or again. Raises NodeNotFound, NodeLost."""

    async def remove(self, node: str) -> None:
        """Take out a node that is no more. Raises NodeNotFound, ClusterUnavailable."""

    async def leave(self) -> None:
        """Take this node out of the cluster. Raises ClusterUnavailable."""


class NoCluster:
    """A daemon alone."""

    def status(self) -> ClusterStatus:
        """Raise ClusterOff."""
        raise _off()

    async def nodes(self) -> NodesNow:
        """Return none."""
        return NodesNow(None, connected=False, unable=None, nodes=())

    async def plan(self, target: str) -> ClusterPlan:
        """Raise ClusterOff."""
        raise _off()

    def models(self) -> Mapping[str, Mapping[str, str]]:
        """Return nothing."""
        return {}

    def versions(self) -> Versions:
        """Raise ClusterOff."""
        raise _off()

    def invite(self, host: str | None, seconds: float) -> Invited:
        """Raise ClusterOff."""
        raise _off()

    async def drain(self, node: str, *, on: bool) -> NodeStatus:
        """Raise ClusterOff."""
        raise _off()

    async def remove(self, node: str) -> None:
        """Raise ClusterOff."""
        raise _off()

    async def leave(self) -> None:
        """Raise ClusterOff."""
        raise _off()


def _off() -> ClusterOff:
    return ClusterOff(
        "This daemon is in no cluster. `supervisor cluster init` begins one, `supervisor cluster join TOKEN` joins "
        "one; restart the daemon afterwards."
    )
