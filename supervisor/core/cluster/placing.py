"""Compare what nodes say of loading a model: whether it fits there, what would have to leave, how fast it would be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """A node's plan.

    Attributes:
        evicts: how many models would have to leave.
        tokens_per_second: foretold; None: nothing is known.
        here: files of the model need not be downloaded.
    """

    node: str
    fits: bool
    evicts: int = 0
    tokens_per_second: float | None = None
    here: bool = True

    @property
    def is_free(self) -> bool:
        """True if a load would disturb nobody: nothing has to leave for it, and nothing is downloaded."""
        return self.fits and self.here and not self.evicts


def best(offers: Iterable[Offer], order: tuple[str, ...]) -> Offer | None:
    """Return the best: nobody leaves, the files are there, the fastest; of equals the first in `order`.

    None where it fits nowhere.
    """

    def rank(one: Offer) -> tuple[int, bool, float, int]:
        place = order.index(one.node) if one.node in order else len(order)
        return one.evicts, not one.here, -(one.tokens_per_second or 0.0), place

    return min((one for one in offers if one.fits), key=rank, default=None)
