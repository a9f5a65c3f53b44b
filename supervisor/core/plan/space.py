"""What is free on a machine while some engines stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from supervisor.core.devices import HOST
from supervisor.core.plan.types import Budgets, Resident


class Space(NamedTuple):
    """Bytes by device, in the order of the budgets, and of the host. Negative where more is used than may be."""

    devices: tuple[int, ...]
    host: int

    def plus(self, other: Space) -> Space:
        mine, theirs = self.devices, other.devices
        return Space(tuple([a + b for a, b in zip(mine, theirs, strict=True)]), self.host + other.host)


def held_by(budgets: Budgets, residents: Iterable[Resident]) -> Space:
    """What engines hold; on devices that share the host's memory also of the host."""
    devices = [0] * len(budgets.devices)
    host = 0
    for resident in residents:
        host += resident.used_bytes.get(HOST, 0)
        for number, budget in enumerate(budgets.devices):
            used = resident.used_bytes.get(budget.name, 0)
            devices[number] += used
            host += used if budget.shares_host else 0
    return Space(tuple(devices), host)


def free_of(budgets: Budgets, residents: Iterable[Resident]) -> Space:
    """What is left for one more engine beside these."""
    held = held_by(budgets, residents)
    usable = [budget.usable_bytes for budget in budgets.devices]
    free = tuple(size - used for size, used in zip(usable, held.devices, strict=True))
    return Space(free, budgets.host.usable_bytes - held.host)
