"""Which devices may be used, and in which order they are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.memory import EstimateOptions, Refusal
from supervisor.core.plan import Budget, Budgets, Explicit, PlanRequest, Policy, plan
from supervisor.core.plan.pools import Pool, pools_of
from tests.core.plan.support import GIB, machine, spec_of


def budgets(*kinds: str) -> Budgets:
    devices = tuple(
        Budget(f"D{number}", kind.removesuffix("*"), GIB, GIB, shares_host=kind.endswith("*"))
        for number, kind in enumerate(kinds)
    )
    return Budgets(devices, Budget("CPU", "cpu", GIB, GIB))


def pools(machine: Budgets, explicit: Explicit | None = None, **options: object) -> tuple[Pool, ...] | Refusal:
    spec = spec_of("llama-3.1-8b")
    request = PlanRequest("m", spec, EstimateOptions(**options), explicit or Explicit())  # type: ignore[arg-type]  # by name
    return pools_of(request, machine)


@pytest.mark.parametrize(
    ("kinds", "lists"),
    [
        ((), []),
        (("cuda", "cuda"), [(0, 1)]),
        (("metal*",), [(0,)]),
        (("rpc", "cuda"), [(1,), (0, 1), (0,)]),
        (("cuda", "vulkan"), [(0,), (1,), (0, 1)]),
        (("vulkan*", "cuda"), [(1,), (0, 1), (0,)]),
    ],
)
def test_one_kind_before_mixtures_and_own_devices_before_others(
    kinds: tuple[str, ...], lists: list[tuple[int, ...]]
) -> None:
    found = pools(budgets(*kinds))
    assert not isinstance(found, Refusal)
    assert [pool.devices for pool in found] == lists
    assert all(set(pool.backend.split(",")) == {kinds[device].strip("*") for device in pool.devices} for pool in found)


def test_two_devices_never_share_the_host_in_one_plan() -> None:
    found = pools(budgets("vulkan*", "vulkan*"))
    assert not isinstance(found, Refusal)
    assert [pool.devices for pool in found] == [(0,), (1,)]


def test_what_the_user_names_is_the_only_list() -> None:
    machine = budgets("cuda", "cuda", "cuda")
    assert pools(machine, Explicit(devices=("D2", "D0"))) == (Pool((2, 0), listed=True, backends=("cuda",) * 2),)
    assert pools(machine, Explicit(devices=())) == ()
    assert pools(machine, Explicit(tensor_split=(1.0, 3.0))) == (
        Pool((0, 1), listed=True, shares=(1.0, 3.0), backends=("cuda",) * 2),
    )
    one = (Pool((1,), listed=True, single=True, backends=("cuda",)),)
    assert pools(machine, Explicit(split_mode="none", main_gpu=1)) == one
    assert pools(machine, Explicit(split_mode="none")) == (Pool((0, 1, 2), single=True, backends=("cuda",) * 3),)
    assert pools(machine, override_tensors=(("ffn", "D1"),)) == (Pool((0, 1, 2), listed=True, backends=("cuda",) * 3),)


@pytest.mark.parametrize(
    ("explicit", "code"),
    [
        (Explicit(devices=("D0", "D7")), "unknown_device"),
        (Explicit(devices=("D0", "D0")), "device_twice"),
        (Explicit(tensor_split=(1.0, 1.0, 1.0)), "too_many_shares"),
        (Explicit(split_mode="none", main_gpu=2), "unknown_device"),
    ],
)
def test_what_is_not_there_is_refused(explicit: Explicit, code: str) -> None:
    found = pools(budgets("cuda", "cuda"), explicit)
    assert isinstance(found, Refusal)
    assert found.code == code


def test_a_single_device_is_no_place_for_what_needs_two() -> None:
    """`split_mode: none`: layers are not divided, however much there is on several devices together."""
    one = PlanRequest("m", spec_of("qwen3-32b"), explicit=Explicit(split_mode="none", n_gpu_layers=65))
    budgets = machine(23, 23, host=4)
    assert plan(replace(one, explicit=Explicit()), budgets, (), Policy()).to_json()["fits"]
    assert not plan(one, budgets, (), Policy()).to_json()["fits"]
