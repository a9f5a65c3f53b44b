"""Engines of which it is known what they hold: where they go, and who leaves."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.devices import HOST, Budget, Budgets
from supervisor.core.plan import DoesNotFit, Resident, Seat, seat


def machine(*devices: int, host: int = 100, shares_host: bool = False) -> Budgets:
    names = enumerate(devices)
    return Budgets(
        tuple(Budget(f"GPU{number}", "cuda", size, size, shares_host=shares_host) for number, size in names),
        Budget(HOST, "cpu", host, host),
    )


def resident(engine: int, used: Mapping[str, int], *, evictable: bool = True) -> Resident:
    return Resident(engine, f"model-{engine}", used, evictable=evictable, idle_seconds=100)


def test_it_holds_what_is_said_and_the_host_is_always_there() -> None:
    found = seat("m", {"GPU1": 8}, machine(10, 10), ())
    assert found == Seat("m", {HOST: 0, "GPU1": 8}, (), ("It holds what `memory` says.",))
    assert found.devices == ("GPU1",)
    assert found.to_json()["parts"] == [{"name": HOST, "total_bytes": 0}, {"name": "GPU1", "total_bytes": 8}]


def test_who_does_not_help_stays() -> None:
    others = (resident(1, {"GPU0": 5}), resident(2, {"GPU1": 5}), resident(3, {HOST: 100}))
    found = seat("m", {"GPU1": 8}, machine(10, 10), others, learned=True)
    assert isinstance(found, Seat)
    assert (found.evict, found.learned) == ((2,), True)
    assert found.why == ("It holds what it was seen to hold before.", "model-2 (engine 2) leaves.")


def test_a_busy_engine_is_waited_for() -> None:
    found = seat("m", {"GPU0": 8}, machine(10), (resident(1, {"GPU0": 5}, evictable=False),))
    assert isinstance(found, DoesNotFit)
    assert (found.later, found.blockers) == (True, (1,))
    assert "would fit once engine 1 (model-1) left" in found.message
    assert found.hints == ("Unload or unpin model-1.",)


def test_memory_that_is_shared_counts_once_for_the_host_and_once_for_the_device() -> None:
    shared = machine(100, host=100, shares_host=True)
    assert isinstance(seat("m", {"GPU0": 60, HOST: 40}, shared, ()), Seat)
    found = seat("m", {"GPU0": 60, HOST: 41}, shared, ())
    assert isinstance(found, DoesNotFit)
    assert [one.device for one in found.shortages] == [HOST]
    assert found.shortages[0].missing_bytes == 1


@pytest.mark.parametrize(("size", "fits"), [(1, False), (0, True)])
def test_a_device_that_is_not_there_has_no_room(size: int, fits: bool) -> None:
    found = seat("m", {"CUDA9": size}, machine(10), ())
    assert isinstance(found, Seat) is fits
    if isinstance(found, DoesNotFit):
        assert found.hints[0] == "There is no CUDA9 here; name in `memory` what is there: CPU, GPU0."


SIZES = st.integers(0, 20)
HELD = st.fixed_dictionaries({HOST: SIZES}, optional={"GPU0": SIZES, "GPU1": SIZES})


@given(st.lists(SIZES, min_size=2, max_size=2), SIZES, HELD, st.lists(st.tuples(HELD, st.booleans()), max_size=4))
def test_no_budget_is_exceeded_and_nobody_leaves_without_need(
    devices: list[int], host: int, wanted: dict[str, int], others: list[tuple[dict[str, int], bool]]
) -> None:
    here = machine(*devices, host=host)
    residents = [resident(n, used, evictable=idle) for n, (used, idle) in enumerate(others, 1)]

    def fits(staying: list[Resident]) -> bool:
        budget = {HOST: host, "GPU0": devices[0], "GPU1": devices[1]}
        held = {name: sum(one.used_bytes.get(name, 0) for one in staying) for name in budget}
        return all(not (size := wanted.get(name, 0)) or held[name] + size <= budget[name] for name in budget)

    found = seat("m", wanted, here, residents)
    if isinstance(found, Seat):
        staying = [one for one in residents if one.engine not in found.evict]
        assert fits(staying)
        assert all(one.evictable for one in residents if one.engine in found.evict)
        assert not any(fits([*staying, one]) for one in residents if one.engine in found.evict)
    else:
        assert not fits([one for one in residents if not one.evictable])
        assert found.later == fits([])
