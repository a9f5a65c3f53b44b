"""The cluster that this daemon is a part of, as it is shown and changed; a daemon alone is in none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from supervisor.errors import ClusterOff


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


@dataclass(frozen=True)
class ClusterStatus:
    """The cluster. node: the one that tells. connected: it hears the others. unable: why it does not.

    servers: the cluster's NATS servers. serves: one of them is a process of this daemon.
    """

    node: str
    connected: bool
    unable: str | None
    servers: Sequence[str]
    serves: bool
    nodes: Sequence[NodeStatus]

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        return asdict(self)


@dataclass(frozen=True)
class Invited:
    """An invitation. token: of use once. expires_at: seconds since 1970."""

    token: str
    expires_at: float


class Clustered(Protocol):
    """What is asked of the cluster. Every call raises ClusterOff where there is none."""

    def status(self) -> ClusterStatus:
        """Return who is there, and what runs where."""

    def models(self) -> Mapping[str, Mapping[str, str]]:
        """Return the models of other nodes, by id: the state on each node that knows them. Empty in no cluster."""

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

    def models(self) -> Mapping[str, Mapping[str, str]]:
        """Return nothing."""
        return {}

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
