"""What is ours to use."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices import Device, Holding, Host, Machine, Reserves, budgets
from supervisor.core.devices.reserves import DEFAULTS
from tests.core.devices.support import GIB

MIB = 1 << 20
NOTHING = Reserves({"cuda": 0, "cpu": 0, "metal": 0}, {"cuda": 0, "cpu": 0, "metal": 0})
HOST = Host(64 * GIB, 60 * GIB)


def cuda(free: int, processes: dict[int, int] | None = None, number: int = 0) -> Device:
    return Device(f"CUDA{number}", "cuda", "", 24 * GIB, free, uuid=f"GPU-{number}", processes=processes or {})


def usable(device: Device, *ours: Holding, reserves: Reserves = NOTHING) -> int:
    return budgets(Machine(HOST, (device,)), ours, reserves).devices[0].usable_bytes


def test_others_are_taken_off() -> None:
    assert usable(cuda(free=20 * GIB)) == 20 * GIB


def test_what_our_engines_hold_is_not_taken_off() -> None:
    device = cuda(free=10 * GIB, processes={7: 9 * GIB, 8: GIB})
    assert usable(device, Holding(7, {"CUDA0": GIB})) == 19 * GIB  # measured, whatever was planned
    assert usable(device, Holding(99, {"CUDA0": 4 * GIB})) == 14 * GIB  # the driver's ids are others: the plan counts
    assert usable(device, Holding(7), Holding(99, {"CUDA0": 4 * GIB})) == 19 * GIB  # 99 holds nothing here yet
    assert usable(cuda(free=10 * GIB), Holding(7, {"CUDA0": 12 * GIB})) == 22 * GIB


def test_a_plan_never_counts_for_more_than_is_used() -> None:
    assert usable(cuda(free=23 * GIB), Holding(None, {"CUDA0": 20 * GIB})) == 24 * GIB


def test_reserves_go_off_and_nothing_is_negative() -> None:
    default = DEFAULTS["cuda"].device_bytes
    assert usable(cuda(free=20 * GIB), reserves=Reserves()) == 20 * GIB - default
    assert usable(cuda(free=100), reserves=Reserves()) == 0
    by_name = Reserves({"cuda": GIB, "CUDA0": 2 * GIB}, {"CUDA0": 5})
    found = budgets(Machine(HOST, (cuda(20 * GIB), cuda(20 * GIB, number=1))), (), by_name).devices
    assert [one.usable_bytes for one in found] == [18 * GIB, 19 * GIB]
    assert [one.reserve_bytes for one in found] == [5, DEFAULTS["cuda"].engine_bytes]


def test_a_limit_holds_whatever_is_free_and_the_name_goes_before_the_back_end() -> None:
    limits = Reserves({"cuda": 0, "cpu": 0}, limit_bytes={"cuda": 9 * GIB, "CUDA0": 5 * GIB, "cpu": GIB})
    found = budgets(Machine(HOST, (cuda(20 * GIB), cuda(20 * GIB, number=1), cuda(GIB, number=2))), (), limits)
    assert [one.usable_bytes for one in found.devices] == [5 * GIB, 9 * GIB, GIB]
    assert found.host.usable_bytes == GIB


def test_a_gpu_with_two_names_counts_once() -> None:
    twin = replace(cuda(20 * GIB), name="Vulkan0", backend="vulkan")
    assert [one.name for one in budgets(Machine(HOST, (cuda(20 * GIB), twin))).devices] == ["CUDA0"]


def test_the_host_counts_measured_memory_of_our_engines() -> None:
    machine = Machine(Host(64 * GIB, 50 * GIB))
    assert budgets(machine, (), NOTHING).host.usable_bytes == 50 * GIB
    assert budgets(machine, [Holding(7, {"CPU": 30 * GIB}, host_bytes=4 * GIB)], NOTHING).host.usable_bytes == 54 * GIB
    assert budgets(machine, [Holding(7, {"CPU": 3 * GIB})], NOTHING).host.usable_bytes == 53 * GIB


def test_shared_memory_of_our_engines_is_the_hosts() -> None:
    metal = Device("MTL0", "metal", "", 48 * GIB, 48 * GIB, shares_host=True)
    machine = Machine(Host(64 * GIB, 50 * GIB), (metal,))
    found = budgets(machine, [Holding(7, {"MTL0": 8 * GIB, "CPU": GIB})], NOTHING)
    assert found.host.usable_bytes == 59 * GIB
    assert (found.devices[0].shares_host, found.devices[0].usable_bytes) == (True, 48 * GIB)


SIZES = st.integers(0, 30 * GIB)
HOLDINGS = st.lists(
    st.builds(
        Holding,
        st.none() | st.integers(1, 4),
        st.dictionaries(st.sampled_from(["CUDA0", "CPU"]), SIZES),
        st.none() | SIZES,
    )
)


@given(SIZES, st.dictionaries(st.integers(1, 4), SIZES), HOLDINGS, SIZES)
def test_usable_lies_between_nothing_and_all(
    free: int, processes: dict[int, int], ours: list[Holding], reserve: int
) -> None:
    machine = Machine(Host(64 * GIB, min(free, 64 * GIB)), (cuda(min(free, 24 * GIB), processes),))
    found = budgets(machine, ours, Reserves({"cuda": reserve, "cpu": reserve}))
    alone = budgets(machine, (), Reserves({"cuda": reserve, "cpu": reserve}))
    for budget, bare, left in (
        (found.devices[0], alone.devices[0], machine.devices[0].free_bytes),
        (found.host, alone.host, machine.host.available_bytes),
    ):
        assert max(0, left - reserve) <= budget.usable_bytes <= max(0, budget.total_bytes - reserve)
        assert budget.usable_bytes >= bare.usable_bytes  # what is ours is never taken off


def test_what_is_kept_back_is_what_the_page_says() -> None:
    """Each back end has a row, or shares one; those without a row have that of the others."""
    page = (Path(__file__).parents[3] / "docs" / "devices.md").read_text("utf-8")
    rows = re.findall(r"^\| ([a-z, ]+?)(?: \(the host\))? \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    told = {name: (int(kept) * MIB, int(each) * MIB) for names, kept, each in rows for name in names.split(", ")}
    assert told.keys() == {*DEFAULTS, "others"}
    defaults = Reserves()
    assert {name: (defaults.for_device("X", name), defaults.for_engine("X", name)) for name in told} == told


def test_what_is_kept_back_may_be_said_by_name_or_by_back_end() -> None:
    told = Reserves({"cuda": 5, "CUDA1": 0}, {"cuda": 7, "CUDA1": 1}, {"cuda": 100, "CUDA1": 50})
    assert [told.for_device(name, "cuda") for name in ("CUDA0", "CUDA1")] == [5, 0]
    assert [told.for_engine(name, "cuda") for name in ("CUDA0", "CUDA1")] == [7, 1]
    assert [told.within(name, "cuda", 80) for name in ("CUDA0", "CUDA1")] == [80, 50]
    assert [told.within(name, "cuda", 200) for name in ("CUDA0", "CUDA1")] == [100, 50]
    assert told.within("MTL0", "metal", 200) == 200
