"""Compare what nodes say of loading a model: whether it fits there, what would have to leave, how fast it would be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """A node's plan.

    Attributes:
        later: it fits once models have left that cannot leave now, as they are busy.
        evicts: how many models would have to leave.
        tokens_per_second: foretold; None: nothing is known.
        here: files of the model need not be downloaded.
    """

    node: str
    fits: bool
    evicts: int = 0
    tokens_per_second: float | None = None
    here: bool = True
    later: bool = False

    @property
    def is_free(self) -> bool:
        """True if a load would disturb nobody: nothing has to leave for it, and nothing is downloaded."""
        return self.fits and self.here and not self.evicts


def best(offers: Iterable[Offer], order: tuple[str, ...]) -> Offer | None:
    """Return the best: now, nobody leaves, the files are there, the fastest; of equals the first in `order`.

    Where it fits nowhere now, it waits for its room on the node where the fewest would have to leave. None where it
    never fits.
    """

    def rank(one: Offer) -> tuple[bool, int, bool, float, int]:
        place = order.index(one.node) if one.node in order else len(order)
        return not one.fits, one.evicts, not one.here, -(one.tokens_per_second or 0.0), place

    return min((one for one in offers if one.fits or one.later), key=rank, default=None)
