"""Choose the node for a request: one that has the model, one that is about to have it, or one that could load it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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
    """Have one of these load the model, the likeliest first. over: the claim of a node that is no more."""

    nodes: tuple[str, ...]
    over: Claimed | None = None


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No node can load the model now; the text says why."""

    why: str


Choice: TypeAlias = Go | Wait | Place | Nowhere


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request.

    Attributes:
        affinity: of its conversation.
        tried: nodes that have failed it.
        here: what runs of its model on this node.
    """

    model: str
    affinity: str | None = None
    tried: frozenset[str] = frozenset()
    here: Running | None = None


def choose(directory: Directory, wanted: Wanted, now: float) -> Choice:
    """Return where a request goes."""
    owners = _owners(directory, wanted, now)
    ready = [one for one in owners if one[1].state == "ready"]
    if ready:
        return Go(_of_ready(directory.me, ready, wanted.affinity))
    if owners:
        return Go(min(owners, key=lambda one: (one[1].waiting, one[0] != directory.me, one[0]))[0])
    claim = directory.claim(wanted.model, now)
    if claim is not None and (taken := _of_claim(directory, claim, wanted, now)) is not None:
        return taken
    return _placing(directory, wanted, claim, now)


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


def _of_ready(me: str, ready: Sequence[tuple[str, Running]], affinity: str | None) -> str:
    if affinity is not None and len(ready) > 1:
        name, running = max(ready, key=lambda one: _weight(one[0], affinity))
        if running.waiting < max(1, running.slots):  # at most one round of its slots to wait
            return name
    for name, running in ready:
        if name == me and running.has_room:
            return name
    return min(ready, key=lambda one: (_queue(one[1]), one[0] != me, one[0]))[0]


def _queue(running: Running) -> float:
    """Return the rounds of its slots that a request waits for."""
    if running.has_room:
        return 0.0
    return (running.busy + running.waiting) / max(1, running.slots)


def _weight(node: str, affinity: str) -> bytes:
    """Return the rank of a node for a conversation: rendezvous hashing, so that few move when nodes come or go."""
    return hashlib.sha256(f"{affinity}\0{node}".encode()).digest()


def _of_claim(directory: Directory, claim: Claimed, wanted: Wanted, now: float) -> Choice | None:
    name = claim.claim.node
    seen = directory.node(name)
    if name == directory.me:
        return Go(name)
    if seen is None or seen.gone:
        return None
    if directory.alive(seen, now):  # also one that has failed before: nobody else may load it
        return Go(name)
    return Wait(claim)


def _placing(directory: Directory, wanted: Wanted, claim: Claimed | None, now: float) -> Choice:
    if not directory.connected:
        return Nowhere("this node has no connection to the cluster, and nobody that it knows of has the model loaded")
    found = [seen for seen in directory.knowing(wanted.model, now) if seen.node.name not in wanted.tried]
    if not found:
        return Nowhere("no node that can load the model can be reached, or takes anything new")
    ranked = sorted(found, key=lambda seen: (-_free(seen), seen.node.name != directory.me, seen.node.name))
    return Place(tuple(seen.node.name for seen in ranked[:MOST_ASKED]), claim)


def _free(seen: Seen) -> int:
    return seen.load.free_bytes if seen.load is not None else 0
