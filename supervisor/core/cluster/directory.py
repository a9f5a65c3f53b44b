"""The nodes of a cluster as one of them sees them: who is there, what runs where, who may load what.

Times are seconds of a monotonic clock of the node that looks. It trusts no other node's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.messages import MOST_REPLICAS, Claim, Load, Node, Running, key_of, peer_of

TELL_S: Final = 5.0
"""Seconds after which a node tells its load again, though nothing has changed."""

SILENT_S: Final = 12.0
"""Seconds without a word after which nothing new is sent to a node."""

CLAIM_S: Final = 20.0
"""Seconds after which a claim ends that is not renewed."""

RENEW_S: Final = 4.0
"""Seconds between two renewals: a store that pauses for as long as an election takes loses no claim."""

MOST_REMOVED: Final = 1024
"""Nodes that were removed, of which the certificates are remembered."""

_AVOIDED_S: Final = 3.0  # for which nothing is sent to a node that could not be reached


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim as it is kept. revision: grows with every change of it. heard_at: when that was noticed."""

    claim: Claim
    revision: int
    heard_at: float


@dataclass(slots=True)
class Seen:
    """A node.

    Attributes:
        load: the last that it told; None: it has told none yet.
        avoid_until: when it may be tried again after it could not be reached.
        gone: it is proven that its daemon has ended.
    """

    node: Node
    load: Load | None = None
    heard_at: float = 0.0
    avoid_until: float = 0.0
    gone: bool = False

    def runs(self, model: str) -> Running | None:
        """Return what it last told of a model; None where it has no engine of it."""
        return None if self.load is None else self.load.models.get(model)


@dataclass(slots=True)
class Directory:
    """What one node knows of all.

    Attributes:
        me: its own name.
        connected: it hears what the others tell. If not, what was heard last counts for as long as it lasts.
    """

    me: str
    connected: bool = False
    _nodes: dict[str, Seen] = field(default_factory=dict)
    _claims: dict[str, dict[int, Claimed]] = field(default_factory=dict)  # by model and replica
    _claim_keys: dict[str, tuple[str, int]] = field(default_factory=dict)  # model and replica by key
    _removed: dict[Peer, None] = field(default_factory=dict)  # those that were removed last
    _names: dict[str, str] = field(default_factory=dict)
    _knowing: dict[str, list[str]] = field(default_factory=dict)  # nodes by model, as the next one
    _running: dict[str, set[str]] = field(default_factory=dict)
    _untold: set[str] = field(default_factory=set)  # who has told nothing since it was connected
    _connected_at: float = 0.0
    _indexed: bool = True  # `_names` and `_knowing` are those of the present nodes

    # what is heard

    def connect(self, now: float) -> None:
        """Note that the others are heard from now on. They have been silent for want of a connection until then."""
        self.connected, self._connected_at = True, now
        self._untold = {name for name, seen in self._nodes.items() if name != self.me and not seen.gone}
        for seen in self._nodes.values():
            seen.heard_at = now

    def disconnect(self) -> None:
        """Note that the others are not heard any more."""
        self.connected = False

    def put(self, node: Node) -> bool:
        """Take in what is kept of a node: it is new, or has changed. Return False where it was removed: its
        certificate makes it no member any more, whatever it has written down since.
        """
        if peer_of(node) in self._removed:
            return False
        seen = self._nodes.get(node.name)
        if seen is None:
            self._nodes[node.name] = Seen(node)
        else:
            if (seen.node.host, seen.node.port) != (node.host, node.port):
                seen.avoid_until, seen.gone = 0.0, False
            seen.node = node
        self._indexed = False
        return True

    def remove(self, name: str, *, for_good: bool = False) -> None:
        """Take out a node that has left. for_good: it was removed."""
        self._untold.discard(name)
        seen = self._nodes.pop(name, None)
        if seen is not None:
            self._note(seen, {})
            if for_good:
                self.bar((peer_of(seen.node),))
        self._indexed = False

    def bar(self, peers: Iterable[Peer]) -> None:
        """Note who was removed, the last one last."""
        self._removed.update((one, None) for one in peers)
        for one in tuple(self._removed)[:-MOST_REMOVED]:
            del self._removed[one]

    @property
    def removed(self) -> tuple[Peer, ...]:
        """Nodes that were removed, the last one last."""
        return tuple(self._removed)

    def hear(self, load: Load, now: float) -> bool:
        """Take in what a node does; return False where it is of no use: of no member, or older than the last one.

        Of a daemon that was started at another time everything counts: its clock may have been set back.
        """
        seen = self._nodes.get(load.node)
        if seen is None:
            return False
        last = seen.load
        if last is not None and load.started_at == last.started_at and load.number <= last.number:
            return False
        self._note(seen, load.models)
        self._untold.discard(load.node)
        seen.load, seen.heard_at, seen.avoid_until, seen.gone = load, now, 0.0, False
        return True

    def _note(self, seen: Seen, models: Mapping[str, Running]) -> None:
        """Note which models run on a node from now on."""
        before = seen.load.models if seen.load is not None else {}
        for model in before.keys() - models.keys():
            having = self._running[model]
            having.discard(seen.node.name)
            if not having:
                del self._running[model]
        for model in models.keys() - before.keys():
            self._running.setdefault(model, set()).add(seen.node.name)

    def claimed(self, claim: Claim, revision: int, now: float) -> None:
        """Take in a claim. Told of the same one again, it is there again now, whatever the clock has done since."""
        known = self._claims.setdefault(claim.model, {})
        before = known.get(claim.replica)
        if before is None or before.revision <= revision:
            known[claim.replica] = Claimed(claim, revision, now)
            self._claim_keys[key_of(claim.model, claim.replica)] = claim.model, claim.replica

    def unclaimed(self, key: str, revision: int) -> None:
        """Take in that the claim with this key has been given up."""
        if (known := self._claim_keys.get(key)) is not None:
            model, replica = known
            if self._claims[model][replica].revision < revision:
                self._unclaim(model, replica)

    def end_claims(self, now: float) -> None:
        """Forget the claims that have ended: other nodes may have made any number of them."""
        known = [(model, number, one) for model, mine in self._claims.items() for number, one in mine.items()]
        for model, replica, claimed in known:
            if now - claimed.heard_at >= CLAIM_S:
                self._unclaim(model, replica)

    def _unclaim(self, model: str, replica: int) -> None:
        del self._claim_keys[key_of(model, replica)]
        del self._claims[model][replica]
        if not self._claims[model]:
            del self._claims[model]

    def forget_claims(self) -> None:
        """Forget all claims: those that there are will be told anew."""
        self._claims.clear()
        self._claim_keys.clear()

    def unreachable(self, name: str, now: float, *, gone: bool) -> None:
        """Note that a node could not be reached. gone: nobody listens there any more, so its daemon has ended."""
        seen = self._nodes.get(name)
        if seen is not None:
            seen.avoid_until, seen.gone = now + _AVOIDED_S, gone
            if gone:
                self._untold.discard(name)

    # what is asked

    def __iter__(self) -> Iterator[Seen]:
        return iter(tuple(self._nodes.values()))

    def node(self, name: str) -> Seen | None:
        """Return a node; None where there is no member of this name."""
        return self._nodes.get(name)

    def alive(self, seen: Seen, now: float) -> bool:
        """Return whether requests may be sent to a node."""
        if seen.node.name == self.me:
            return True
        heard = seen.load is not None and not self.is_silent(seen, now)
        return heard and not seen.gone and now >= seen.avoid_until

    def untold(self, now: float) -> frozenset[str]:
        """Return who has yet to tell what it has loaded, as this node has just come, or come back.

        Whoever is silent is not waited for.
        """
        return frozenset() if now - self._connected_at >= SILENT_S else frozenset(self._untold)

    def others(self, now: float) -> list[Seen]:
        """Return the other nodes to which requests may be sent."""
        return [seen for seen in self._nodes.values() if seen.node.name != self.me and self.alive(seen, now)]

    def is_silent(self, seen: Seen, now: float) -> bool:
        """Return whether a node says nothing any more, though it would be heard."""
        return self.connected and seen.load is not None and now - seen.heard_at >= SILENT_S

    def id_of(self, name: str) -> str | None:
        """Return the id of the model that a name means anywhere in the cluster; None where nobody knows it."""
        self._index()
        return self._names.get(name)

    def models(self) -> Mapping[str, tuple[str, ...]]:
        """Return the models that any node can load or has loaded, by id, with their aliases."""
        found: dict[str, tuple[str, ...]] = {}
        for seen in self._nodes.values():
            for model, aliases in seen.node.models.items():
                found[model] = tuple(dict.fromkeys((*found.get(model, ()), *aliases)))
        return found

    def knowing(self, model: str, now: float) -> list[Seen]:
        """Return the nodes that can load a model and take something new, by name."""
        self._index()
        found = [self._nodes[name] for name in self._knowing.get(model, ())]
        return [seen for seen in found if self.alive(seen, now) and not (seen.load and seen.load.draining)]

    def running(self, model: str, now: float) -> list[tuple[Seen, Running]]:
        """Return the nodes where a model has an engine, by name."""
        found = [self._nodes[name] for name in sorted(self._running.get(model, ()))]
        pairs = ((seen, seen.runs(model)) for seen in found if self.alive(seen, now))
        return [(seen, running) for seen, running in pairs if running is not None]

    def having(self, model: str, now: float) -> list[Seen]:
        """Return the other nodes that have an engine of a model as far as is known, reachable or not, by name."""
        found = [self._nodes[name] for name in sorted(self._running.get(model, set()) - {self.me})]
        return [seen for seen in found if not seen.gone and not self.is_silent(seen, now)]

    def claims(self, model: str, now: float) -> list[Claimed]:
        """Return who may load a model, by replica. Claims that have ended are not among them."""
        known = self._claims.get(model, {})
        return [known[replica] for replica in sorted(known) if now - known[replica].heard_at < CLAIM_S]

    def claim(self, model: str, node: str, now: float) -> Claimed | None:
        """Return the claim by which a node may load a model; None where it has none."""
        return next((one for one in self.claims(model, now) if one.claim.node == node), None)

    def free_replica(self, model: str, now: float) -> int | None:
        """Return the first replica of a model that nobody has claimed; None: there are as many as there may be."""
        taken = {one.claim.replica for one in self.claims(model, now)}
        return next((number for number in range(MOST_REPLICAS) if number not in taken), None)

    def claims_of(self, name: str, now: float) -> list[str]:
        """Return the models that a node has claimed, sorted."""
        return sorted(model for model in self._claims if self.claim(model, name, now) is not None)

    def _index(self) -> None:
        """Have the index of names and models, which many nodes that come at the same time make once."""
        if self._indexed:
            return
        self._names, self._knowing, self._indexed = {}, {}, True
        for _, seen in sorted(self._nodes.items(), reverse=True):
            self._names.update({alias: model for model, aliases in seen.node.models.items() for alias in aliases})
        for name, seen in sorted(self._nodes.items()):
            self._names.update({model: model for model in seen.node.models})
            for model in seen.node.models:
                self._knowing.setdefault(model, []).append(name)
