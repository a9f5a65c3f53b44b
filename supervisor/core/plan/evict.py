"""Choose which engines leave so that another finds room: the cheapest set, and nobody who does not help.

What it costs to evict an engine, in seconds that somebody will wait, weighed:

    (1 + seconds to load it again) × 600 / (600 + seconds it has been idle) × 2 ^ priority

The middle factor stands for how soon it will be asked for again: it halves after ten minutes of idleness, is a third
after twenty. A priority that is one higher doubles the cost. The set with the least sum is found by looking at sets in
the order of their sums; after `_CHECKS` of them the search settles for a set of which nobody can stay: engines are
kept one by one, the most expensive first, as long as the plan still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from supervisor.core.plan.types import Resident

_IDLE_HALF = 600.0
_MOST_PRIORITY = 30
_CHECKS = 48

Leaving = tuple[Resident, ...]


def cost_of(resident: Resident) -> float:
    """Return the cost of evicting an engine by the formula above; always more than 0."""
    recency = _IDLE_HALF / (_IDLE_HALF + max(0.0, resident.idle_seconds))
    weight = 2.0 ** max(-_MOST_PRIORITY, min(_MOST_PRIORITY, resident.priority))
    return (1.0 + max(0.0, resident.reload_seconds)) * recency * weight


def cheapest(
    residents: Iterable[Resident], enough: Callable[[Leaving], bool], cost: Callable[[Resident], float] = cost_of
) -> Leaving | None:
    """Return the set to evict, by engine number; None if not even all of them would be enough.

    Args:
        residents: who may leave.
        enough: whether the plan fits once these have left; stays true as more leave.
    """
    order = sorted(residents, key=lambda resident: (cost(resident), resident.engine))
    if not order or not enough(tuple(order)):
        return None
    costs = [cost(resident) for resident in order]
    for places in islice(_by_sum(costs), _CHECKS):
        leaving = tuple(order[place] for place in places)
        if enough(leaving):
            return _numbered(leaving)
    return _numbered(_pruned(order, enough))


def _by_sum(costs: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """Yield every set of places but the empty one, in the order of its sum; `costs` ascend."""
    waiting: list[tuple[float, tuple[int, ...]]] = [(costs[0], (0,))]
    while waiting:
        total, places = heappop(waiting)
        yield places
        after = places[-1] + 1
        if after < len(costs):
            heappush(waiting, (total + costs[after], (*places, after)))
            heappush(waiting, (total + costs[after] - costs[places[-1]], (*places[:-1], after)))


def _pruned(order: Sequence[Resident], enough: Callable[[Leaving], bool]) -> Leaving:
    leaving = tuple(order)
    for resident in reversed(order):
        without = tuple(other for other in leaving if other is not resident)
        if enough(without):
            leaving = without
    return leaving


def _numbered(leaving: Leaving) -> Leaving:
    return tuple(sorted(leaving, key=lambda resident: resident.engine))
