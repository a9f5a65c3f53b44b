"""The free memory of a machine while some engines stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from supervisor.core.devices import HOST
from supervisor.core.plan.types import Budget, Budgets, Resident


class Space(NamedTuple):
    """Bytes by device, in the order of the budgets, and of the host. Negative where more is used than may be."""

    devices: tuple[int, ...]
    host: int

    def plus(self, other: Space) -> Space:
        """Return the sum, device by device: what is free once whoever held `other` has left."""
        mine, theirs = self.devices, other.devices
        return Space(tuple([a + b for a, b in zip(mine, theirs, strict=True)]), self.host + other.host)


def held_by(budgets: Budgets, residents: Iterable[Resident]) -> Space:
    """Return the bytes that engines hold; on devices that share the host's memory they count on the host too.

    An RPC worker serves one engine at a time: whoever is on one of its devices, were it without a layer, leaves less
    than nothing of them to others.
    """
    devices = [0] * len(budgets.devices)
    host = 0
    workers = {budget.name: worker for budget in budgets.devices if (worker := worker_of(budget))}
    for resident in residents:
        host += resident.used_bytes.get(HOST, 0)
        busy = {worker for name, worker in workers.items() if name in resident.used_bytes}
        for number, budget in enumerate(budgets.devices):
            used = resident.used_bytes.get(budget.name, 0)
            devices[number] += max(used, budget.usable_bytes) + 1 if workers.get(budget.name) in busy else used
            host += used if budget.shares_host else 0
    return Space(tuple(devices), host)


def used_by(budgets: Budgets, residents: Sequence[Resident]) -> frozenset[int]:
    """Return the devices on which these engines hold anything, by their place in the budgets."""
    names = {name for resident in residents for name, size in resident.used_bytes.items() if size}
    return frozenset(number for number, budget in enumerate(budgets.devices) if budget.name in names)


def worker_of(budget: Budget) -> str | None:
    """Return a name that all devices of one RPC worker share; None if the device is no worker's."""
    if budget.backend != "rpc":
        return None
    return budget.endpoint or budget.name


def free_of(budgets: Budgets, residents: Iterable[Resident]) -> Space:
    """Return the space that is left for one more engine beside these."""
    held = held_by(budgets, residents)
    usable = [budget.usable_bytes for budget in budgets.devices]
    free = tuple(size - used for size, used in zip(usable, held.devices, strict=True))
    return Space(free, budgets.host.usable_bytes - held.host)
