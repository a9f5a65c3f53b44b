"""Who leaves: the cheapest set, against trying all sets."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.plan import Resident
from supervisor.core.plan.evict import Leaving, cheapest, cost_of


def resident(engine: int, size: int, **more: float) -> Resident:
    values = {"reload_seconds": 10.0, "idle_seconds": 0.0, **more}
    return Resident(engine, f"model-{engine}", {"A": size}, evictable=True, **values)  # type: ignore[arg-type]  # by name


residents = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=5).map(
    lambda rows: [resident(number, size, reload_seconds=seconds) for number, (size, seconds) in enumerate(rows)]
)


def size_of(leaving: Leaving) -> int:
    return sum(one.used_bytes["A"] for one in leaving)


@given(residents, st.integers(1, 40))
def test_the_cheapest_set_is_found(company: list[Resident], needed: int) -> None:
    sets = chain.from_iterable(combinations(company, count) for count in range(1, len(company) + 1))
    costs = [sum(map(cost_of, leaving)) for leaving in sets if size_of(leaving) >= needed]
    found = cheapest(company, lambda leaving: size_of(leaving) >= needed)
    assert (found is None) == (not costs)
    if found:
        assert sum(map(cost_of, found)) == min(costs)


def test_after_many_sets_it_settles_for_one_of_which_nobody_can_stay() -> None:
    company = [resident(number, 10, reload_seconds=number) for number in range(20)]
    asked = 0

    def enough(leaving: Leaving) -> bool:
        nonlocal asked
        asked += 1
        return size_of(leaving) >= 140

    found = cheapest(company, enough)
    assert found
    assert [one.engine for one in found] == list(range(14))
    assert asked < 100


def test_the_cost_follows_reload_idleness_and_priority() -> None:
    base = cost_of(resident(1, 1))
    assert cost_of(resident(1, 1, reload_seconds=21)) == 2 * base
    assert cost_of(resident(1, 1, idle_seconds=600)) == base / 2
    assert cost_of(resident(1, 1, priority=1)) == 2 * base
    assert cost_of(resident(1, 1, reload_seconds=-5, idle_seconds=-5, priority=-100)) > 0
