"""Choose the node for a request: one that has the model, one that is about to have it, or one that could load it.

Where all that have it are behind, as a request would wait there for longer than a load takes, one more may load it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

from supervisor.core.cluster.directory import Claimed, Directory, Seen
from supervisor.core.cluster.messages import Running

MOST_ASKED: Final = 8
"""Nodes that are asked for a plan before a model is loaded."""


@dataclass(frozen=True, slots=True)
class Go:
    """Send the request to this node; it may be the one that asks."""

    node: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the end of this claim: whoever has it cannot be reached, and may have the model loaded."""

    claim: Claimed


@dataclass(frozen=True, slots=True)
class Place:
    """Have one of these load the model, the likeliest first.

    Attributes:
        over: the claim of a node that is no more, which the new one takes the place of.
        replica: which copy of the model it will be.
    """

    nodes: tuple[str, ...]
    over: Claimed | None = None
    replica: int = 0


@dataclass(frozen=True, slots=True)
class Spill:
    """Have one of these load another copy, if it has free room for it; else send the request to the node `back`."""

    back: str
    place: Place


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No node can load the model now; the text says why."""

    why: str


Choice: TypeAlias = Go | Wait | Place | Spill | Nowhere


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request.

    Attributes:
        affinity: of its conversation.
        tried: nodes that have failed it.
        here: what runs of its model on this node.
        spills: another copy of its model may be loaded for it.
    """

    model: str
    affinity: str | None = None
    tried: frozenset[str] = frozenset()
    here: Running | None = None
    spills: bool = False


def choose(directory: Directory, wanted: Wanted, now: float) -> Choice:
    """Return where a request goes."""
    owners = _owners(directory, wanted, now)
    if owners:
        node = _of_owners(directory.me, owners, wanted.affinity)
        place = _another(directory, wanted, owners, now)
        return Go(node) if place is None else Spill(node, place)
    claims = directory.claims(wanted.model, now)
    gone = [one for one in claims if _is_gone(directory, one)]
    left = [one for one in claims if one not in gone]
    for claim in left:  # also of one that has failed before: nobody else may load it
        seen = directory.node(claim.claim.node)
        if claim.claim.node == directory.me or (seen is not None and directory.alive(seen, now)):
            return Go(claim.claim.node)
    if left:
        return Wait(left[0])
    return _placing(directory, wanted, gone[0] if gone else None, now)


def _owners(directory: Directory, wanted: Wanted, now: float) -> list[tuple[str, Running]]:
    """Return who has the model. What this node has is known to it better than what it told."""
    found = [
        (seen.node.name, running)
        for seen, running in directory.running(wanted.model, now)
        if seen.node.name not in wanted.tried and seen.node.name != directory.me
    ]
    if wanted.here is not None and directory.me not in wanted.tried:
        found.append((directory.me, wanted.here))
    return found


def _of_owners(me: str, owners: Sequence[tuple[str, Running]], affinity: str | None) -> str:
    """Return who answers of those that have the model or load it."""
    ready = [one for one in owners if one[1].state == "ready"]
    if not ready:
        return min(owners, key=lambda one: (one[1].waiting, one[0] != me, one[0]))[0]
    name, running = _of_ready(me, ready, affinity)
    coming = min((one for one in owners if one not in ready), key=lambda one: one[1].wait_s, default=None)
    if coming is not None and running.is_behind and coming[1].wait_s < running.wait_s:
        return coming[0]
    return name


def _of_ready(me: str, ready: Sequence[tuple[str, Running]], affinity: str | None) -> tuple[str, Running]:
    if affinity is not None and len(ready) > 1:
        found = max(ready, key=lambda one: _weight(one[0], affinity))
        if found[1].waiting < max(1, found[1].slots):  # at most one round of its slots to wait
            return found
    for one in ready:
        if one[0] == me and one[1].has_room:
            return one
    return min(ready, key=lambda one: (_queue(one[1]), one[0] != me, one[0]))


def _another(directory: Directory, wanted: Wanted, owners: Sequence[tuple[str, Running]], now: float) -> Place | None:
    """Return who may load another copy of a model; None where there is no need for one, or one is coming up."""
    behind = all(one.state == "ready" and one.is_behind for _, one in owners)
    if not (behind and wanted.spills and directory.connected):
        return None
    having = {name for name, _ in owners}
    replica = directory.free_replica(wanted.model, now)
    if replica is None or {one.claim.node for one in directory.claims(wanted.model, now)} - having:
        return None
    nodes = _likeliest(directory, wanted, having, now)
    return Place(nodes, replica=replica) if nodes else None


def _queue(running: Running) -> float:
    """Return the rounds of its slots that a request waits for."""
    if running.has_room:
        return 0.0
    return (running.busy + running.waiting) / max(1, running.slots)


def _weight(node: str, affinity: str) -> bytes:
    """Return the rank of a node for a conversation: rendezvous hashing, so that few move when nodes come or go."""
    return hashlib.sha256(f"{affinity}\0{node}".encode()).digest()


def _is_gone(directory: Directory, claim: Claimed) -> bool:
    """Return whether the node of a claim is proven to be no more."""
    seen = directory.node(claim.claim.node)
    return claim.claim.node != directory.me and (seen is None or seen.gone)


def _placing(directory: Directory, wanted: Wanted, over: Claimed | None, now: float) -> Choice:
    if not directory.connected:
        return Nowhere("this node has no connection to the cluster, and nobody that it knows of has the model loaded")
    nodes = _likeliest(directory, wanted, frozenset(), now)
    if not nodes:
        return Nowhere("no node that can load the model can be reached, or takes anything new")
    return Place(nodes, over, 0 if over is None else over.claim.replica)


def _likeliest(directory: Directory, wanted: Wanted, having: Set[str], now: float) -> tuple[str, ...]:
    """Return the nodes that may be asked to load a model: those with the most free memory first."""
    found = [seen for seen in directory.knowing(wanted.model, now) if seen.node.name not in wanted.tried | having]
    ranked = sorted(found, key=lambda seen: (-_free(seen), seen.node.name != directory.me, seen.node.name))
    return tuple(seen.node.name for seen in ranked[:MOST_ASKED])


def _free(seen: Seen) -> int:
    return seen.load.free_bytes if seen.load is not None else 0
