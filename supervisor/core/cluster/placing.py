"""Compare what nodes say of loading a model: whether it fits there, what would have to leave, how fast it would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Offer:
    """A node's plan.

    Attributes:
        evicts: how many models would have to leave.
        tokens_per_second: foretold; None: nothing is known.
        here: all files of the model are on the node's disk.
        plan: all that the node has said.
    """

    node: str
    fits: bool
    evicts: int = 0
    tokens_per_second: float | None = None
    here: bool = True
    plan: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def is_free(self) -> bool:
        """True if a load would disturb nobody: nothing has to leave for it, and nothing is downloaded."""
        return self.fits and self.here and not self.evicts


def best(offers: Iterable[Offer], order: tuple[str, ...]) -> Offer | None:
    """Return the best: nobody leaves, the files are there, the fastest; of equals the first in `order`.

    None where it fits nowhere.
    """

    return min((one for one in offers if one.fits), key=lambda one: _rank(one, order), default=None)


def why_best(offers: Iterable[Offer], order: tuple[str, ...]) -> str:
    """Return what makes the best of them the best, for a sentence that has named its node."""
    fitting = sorted((one for one in offers if one.fits), key=lambda one: _rank(one, order))
    if len(fitting) < 2:
        return "it fits on no other node that was asked"
    first, second = (_rank(one, order) for one in fitting[:2])
    place = next(at for at in range(len(first)) if first[at] != second[at])
    return _WHY[place]


_WHY = (
    "fewer models have to leave there",
    "its files are there already",
    "it is foretold to be the fastest there",
    "of nodes that are alike it has the most free memory",
)
"""What is said where a part of the rank decides."""


def _rank(one: Offer, order: tuple[str, ...]) -> tuple[int, bool, float, int]:
    place = order.index(one.node) if one.node in order else len(order)
    return one.evicts, not one.here, -(one.tokens_per_second or 0.0), place
