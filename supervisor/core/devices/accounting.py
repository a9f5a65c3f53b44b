"""Compute what is ours to use on each device: total − used by others − reserve.

Used by others is what is used at all, less what our engines really hold. What our engines hold is not taken off here:
the planner does, engine by engine, because it may decide that one of them leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.core.devices.budget import Budget, Budgets
from supervisor.core.devices.model import HOST, Device, Machine
from supervisor.core.devices.reserves import Reserves

CPU = "cpu"
"""The host's back end in a budget."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The memory of one of our engines.

    Attributes:
        pid: of its process; None while it has none.
        planned_bytes: by device name, `CPU` included: what the plan, or an earlier start, says it takes.
        host_bytes: measured: memory of the host that is its own (no file pages); None where it cannot be measured.
    """

    pid: int | None = None
    planned_bytes: Mapping[str, int] = field(default_factory=dict)
    host_bytes: int | None = None


def budgets(machine: Machine, ours: Sequence[Holding] = (), reserves: Reserves | None = None) -> Budgets:
    """Return the machine as the planner sees it; a GPU that two back ends list counts once, under its first name.

    Args:
        machine: total and free as probed, nothing subtracted.
        ours: all our engines that live, or are being started.
        reserves: None: the defaults.
    """
    kept = reserves or Reserves()
    told = _driver_tells_of(machine, ours)
    devices = tuple(_device_budget(device, ours, kept, told) for device in distinct(machine.devices))
    return Budgets(devices, _host_budget(machine, ours, kept))


def distinct(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices without second names of the same GPU. llama.cpp takes the first of each as well."""
    found: dict[str, Device] = {}
    for device in devices:
        key = device.uuid or device.pci or device.name
        found.setdefault(key, device)
    return tuple(found.values())


def _device_budget(device: Device, ours: Sequence[Holding], reserves: Reserves, told: bool) -> Budget:
    used = max(0, device.total_bytes - device.free_bytes)
    held = sum(_held(device, one, told) for one in ours)
    others = used - min(held, used)
    usable = max(0, device.total_bytes - others - reserves.for_device(device.name, device.backend))
    return Budget(
        name=device.name,
        backend=device.backend,
        total_bytes=device.total_bytes,
        usable_bytes=reserves.within(device.name, device.backend, usable),
        reserve_bytes=reserves.for_engine(device.name, device.backend),
        shares_host=device.shares_host,
        endpoint=device.endpoint,
        others_bytes=others,
    )


def _host_budget(machine: Machine, ours: Sequence[Holding], reserves: Reserves) -> Budget:
    host = machine.host
    sharing = {HOST, *(device.name for device in machine.devices if device.shares_host)}
    used = max(0, host.total_bytes - host.available_bytes)
    held = sum(_held_of_host(one, sharing) for one in ours)
    others = used - min(held, used)
    usable = max(0, host.total_bytes - others - reserves.for_device(HOST, CPU))
    return Budget(
        name=HOST,
        backend=CPU,
        total_bytes=host.total_bytes,
        usable_bytes=reserves.within(HOST, CPU, usable),
        reserve_bytes=reserves.for_engine(HOST, CPU),
        shares_host=True,
        others_bytes=others,
    )


def _driver_tells_of(machine: Machine, ours: Sequence[Holding]) -> bool:
    """Return whether the drivers' process ids can be compared with ours; in a container they may be those outside."""
    pids = {one.pid for one in ours if one.pid is not None}
    return any(pids & device.processes.keys() for device in machine.devices)


def _held(device: Device, one: Holding, told: bool) -> int:
    if one.pid is not None and one.pid in device.processes:
        return device.processes[one.pid]
    if told and device.processes and one.pid is not None:
        return 0
    return max(0, one.planned_bytes.get(device.name, 0))


def _held_of_host(one: Holding, sharing: set[str]) -> int:
    if one.host_bytes is not None:
        return max(0, one.host_bytes)
    return sum(max(0, count) for name, count in one.planned_bytes.items() if name in sharing)
