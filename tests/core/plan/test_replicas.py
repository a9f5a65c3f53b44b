"""Another engine of a model goes to devices on which the model has none, as long as nothing is given up for it."""

from __future__ import annotations

import pytest

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Budgets, PlanRequest, Resident
from tests.core.plan.support import GIB, machine, places, spec_of

SMALL = PlanRequest("small", spec_of("llama-3.1-8b"), EstimateOptions(ctx_size=4096))


def devices(budgets: Budgets, *residents: Resident) -> tuple[str, ...]:
    return places(SMALL, budgets, residents).devices


def replica(number: int, budgets: Budgets, *others: Resident, model: str = "small") -> Resident:
    return Resident(number, model, places(SMALL, budgets, others).used_bytes)


def test_each_replica_has_a_device_of_its_own() -> None:
    budgets = machine(80, 80, 80, host=62)
    there: list[Resident] = []
    for number in range(3):
        there.append(replica(number, budgets, *there))
    assert {name for one in there for name in one.used_bytes} == {"CUDA0", "CUDA1", "CUDA2", "CPU"}


def test_another_model_goes_where_least_is_left() -> None:
    budgets = machine(80, 80, host=62)
    other = replica(1, budgets, model="other")
    (taken,) = set(other.used_bytes) - {"CPU"}
    assert devices(budgets, other) == (taken,)


@pytest.mark.parametrize("free", [2, 20])
def test_it_stays_beside_the_other_where_apart_is_no_room(free: int) -> None:
    """With 20 GiB the model would fit, with less context than it may have."""
    budgets = machine(120, 80, host=62)
    first = Resident(1, "small", {"CUDA0": 40 * GIB})
    busy = Resident(2, "other", {"CUDA1": (80 - free) * GIB})
    assert devices(budgets, first, busy) == ("CUDA0",)


def test_whichever_device_the_first_is_on() -> None:
    budgets = machine(80, 80, host=62)
    for name in ("CUDA0", "CUDA1"):
        there = Resident(1, "small", {name: 30 * GIB, "CPU": GIB})
        assert devices(budgets, there) != (name,)


def test_what_holds_nothing_on_a_device_is_not_there() -> None:
    budgets = machine(40, 80, host=62)
    alone = devices(budgets)
    assert devices(budgets, Resident(1, "small", {alone[0]: 0, "CPU": GIB})) == alone
