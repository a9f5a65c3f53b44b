"""Limit the lines that one cause may write: some at once, then a few a second; count those that were left out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass
class _Bucket:
    left: float
    at: float
    dropped: int = 0


class Flood:
    """A token bucket of lines for each cause; the causes that were quiet the longest are forgotten.

    Args:
        burst: lines that a cause may write at once.
        per_second: lines that it may write after that.
        causes: how many are told apart.
    """

    def __init__(self, burst: int = 50, per_second: float = 5.0, causes: int = 500) -> None:
        self._burst, self._per_second, self._causes = burst, per_second, causes
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def passes(self, cause: Hashable, now: float) -> int | None:
        """Return how many lines of the cause were left out since its last one; None if this line is one too many."""
        bucket = self._buckets.get(cause)
        if bucket is None:
            bucket = self._buckets[cause] = _Bucket(self._burst, now)
            if len(self._buckets) > self._causes:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(cause)
        bucket.left = min(self._burst, bucket.left + max(0.0, now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.left < 1:
            bucket.dropped += 1
            return None
        bucket.left -= 1
        dropped, bucket.dropped = bucket.dropped, 0
        return dropped
