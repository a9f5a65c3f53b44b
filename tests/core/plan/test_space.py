"""What is free beside other engines."""

from __future__ import annotations

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Budget, Budgets, Explicit, PlanRequest, Policy, Resident
from supervisor.core.plan.space import Space, free_of, held_by
from tests.core.plan.support import GIB, fails, places, spec_of


def worker(name: str, endpoint: str, gib: int = 24) -> Budget:
    return Budget(name, "rpc", gib * GIB, gib * GIB, endpoint=endpoint)


WORKERS = Budgets(
    (worker("RPC0", "one:1"), worker("RPC1", "one:1"), worker("RPC2", "two:1")), Budget("CPU", "cpu", 8 * GIB, 8 * GIB)
)
MODEL = PlanRequest("m", spec_of("llama-3.1-8b"), EstimateOptions(), Explicit(ctx_size=4096))
ON_DEVICES = Policy(partial_offload=False)


def holder(engine: int, *, evictable: bool, **used: int) -> Resident:
    return Resident(engine, f"model-{engine}", used, evictable=evictable)


def test_what_a_device_shares_with_the_host_is_taken_from_both() -> None:
    shared = Budget("MTL0", "metal", 48 * GIB, 48 * GIB, shares_host=True)
    machine = Budgets((shared,), Budget("CPU", "cpu", 60 * GIB, 60 * GIB))
    free = free_of(machine, [holder(1, evictable=False, MTL0=10 * GIB, CPU=2 * GIB)])
    assert free == Space((38 * GIB,), 48 * GIB)


def test_a_worker_serves_one_engine_with_all_its_devices() -> None:
    for used in (4 * GIB, 0):  # in the engine's list without a layer: it has the worker all the same
        found = places(MODEL, WORKERS, [holder(1, evictable=False, RPC0=used)], ON_DEVICES)
        assert found.devices == ("RPC2",)
    both = [holder(1, evictable=False, RPC1=0), holder(2, evictable=False, RPC2=GIB)]
    assert fails(MODEL, WORKERS, both, ON_DEVICES).blockers


def test_of_a_busy_worker_nothing_is_left_not_even_for_what_takes_no_room() -> None:
    free = free_of(WORKERS, [holder(1, evictable=False, RPC0=0)])
    assert max(free.devices[:2]) < 0
    assert free.devices[2] == 24 * GIB


def test_a_worker_is_had_once_its_engine_has_left() -> None:
    both = [holder(1, evictable=True, RPC1=0), holder(2, evictable=False, RPC2=GIB)]
    found = places(MODEL, WORKERS, both, ON_DEVICES)
    assert found.evict == (1,)
    assert set(found.devices) < {"RPC0", "RPC1"}


def test_who_leaves_gives_back_what_it_held() -> None:
    both = [holder(1, evictable=True, RPC0=GIB, CPU=GIB), holder(2, evictable=False, RPC0=GIB)]
    after = free_of(WORKERS, both).plus(held_by(WORKERS, both[:1]))
    assert after == free_of(WORKERS, both[1:])
