"""Who is a member of the cluster: what follows for the NATS server of this node, and for who asks at its port."""

from __future__ import annotations

from supervisor.cluster.kept import Membership
from supervisor.cluster.known import known_in
from supervisor.cluster.natsserver import NatsServer
from supervisor.core.cluster.directory import Directory
from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.messages import peer_of
from supervisor.workers.members import Members


class Roll:
    """The members, as the directory has them. It has those that were known last, until the store says who there is.

    Args:
        kept: this node's membership. server: its NATS server; None: it runs none.

    Attributes:
        joined: whom this node has let in. Only the one with the authority lets anybody in.
    """

    def __init__(self, kept: Membership, directory: Directory, server: NatsServer | None) -> None:
        self._directory = directory
        self._server = server
        self._known = known_in(kept.folder)
        nodes, removed = self._known.read()
        directory.bar(removed)
        for node in nodes:
            directory.put(node)
        self.joined = Members(kept.folder / "members.json")
        self._admit()

    def has(self, peer: Peer) -> bool:
        """Return whether who has a certificate is a member, still and already."""
        seen = self._directory.node(peer.name)
        return seen is not None and seen.node.serial == peer.serial

    def changed(self, left: str | None) -> None:
        """Keep who is a member, as it has changed, and let nobody else into the store. left: is none any more."""
        if left is not None:
            self.joined.remove(left)
        nodes = (seen.node for seen in sorted(self._directory, key=lambda one: one.node.name))
        self._known.keep(nodes, self._directory.removed)
        self._admit()

    def _admit(self) -> None:
        if self._server is not None:
            self._server.admit(peer_of(seen.node) for seen in self._directory)
