"""Place an engine of which it is known by other means what it will hold on each device: said by people, or measured.

There is nothing to choose but who leaves: the bytes go where they are said to go. Bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from supervisor.core.devices import HOST
from supervisor.core.plan.evict import Leaving, cheapest, cost_of
from supervisor.core.plan.space import Space, free_of, held_by
from supervisor.core.plan.types import Budgets, DoesNotFit, Placement, Resident, Shortage
from supervisor.core.plan.why import gib, listed

_LEARNED = "It holds what it was seen to hold before."
_STAYS = 1e12  # seconds: what it costs to move an engine that cannot be moved


@dataclass(frozen=True, slots=True)
class Seat:
    """The decision for an engine whose memory is known: it holds that, where it is said.

    Attributes:
        used_bytes: by device name; the host is `CPU` and always there.
        evict: engines that must leave first.
        why: the reasoning, a sentence each.
        learned: the figures come from an earlier start.
    """

    model: str
    used_bytes: Mapping[str, int]
    evict: tuple[int, ...] = ()
    why: tuple[str, ...] = ()
    learned: bool = False

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that it uses, without the host."""
        return tuple(name for name in self.used_bytes if name != HOST)

    @property
    def host_growth(self) -> None:
        """None: it may grow on the host as far as it likes."""
        return None

    def to_json(self) -> dict[str, object]:
        """Return the object of `plan --json` (docs/commands.md)."""
        return {
            "fits": True,
            "model": self.model,
            "devices": list(self.devices),
            "parts": [{"name": name, "total_bytes": size} for name, size in self.used_bytes.items()],
            "evict": list(self.evict),
            "why": list(self.why),
            "learned": self.learned,
        }


Place: TypeAlias = Placement | Seat
"""A decision: where an engine goes, and what it will hold."""


def seat(
    model: str,
    wanted: Mapping[str, int],
    budgets: Budgets,
    residents: Sequence[Resident],
    *,
    learned: bool = False,
    why: str = "It holds what `memory` says.",
) -> Seat | DoesNotFit:
    """Return the seat of an engine that will hold `wanted` bytes by device, or the numbers why there is none.

    learned: they come from an earlier start. why: the sentence on where they come from otherwise.

    Pure and deterministic. No device and no host is filled beyond its budget, and nobody leaves without need. A device
    that is not there has no room.
    """
    wanted = {HOST: 0, **wanted}
    there = {budget.name for budget in budgets.devices} | {HOST}
    free, need = free_of(budgets, residents), _space(budgets, model, wanted)
    absent = tuple(Shortage(name, wanted[name], 0) for name in wanted if name not in there and wanted[name])

    def enough(leaving: Leaving) -> bool:
        return not absent and not _short(budgets, free.plus(held_by(budgets, leaving)), need)

    movable = [one for one in residents if one.evictable]
    leaving: Leaving | None = () if enough(()) else cheapest(movable, enough)
    if leaving is not None:
        source = _LEARNED if learned else why
        reasons = (source, *(f"{one.model} (engine {one.engine}) leaves." for one in leaving))
        return Seat(model, wanted, tuple(one.engine for one in leaving), reasons, learned)
    space = free.plus(held_by(budgets, movable))
    blockers = _blockers(residents, enough)
    return _no_seat(model, (*absent, *_short(budgets, space, need)), blockers, sorted(there))


def _space(budgets: Budgets, model: str, wanted: Mapping[str, int]) -> Space:
    """Return the bytes that are needed, device by device; those on a device of the host's memory count there too."""
    return held_by(budgets, [Resident(0, model, wanted)])


def _short(budgets: Budgets, free: Space, need: Space) -> tuple[Shortage, ...]:
    names = (*(one.name for one in budgets.devices), HOST)
    rows = zip(names, (*need.devices, need.host), (*free.devices, free.host), strict=True)
    return tuple(Shortage(name, size, max(0, room)) for name, size, room in rows if size and size > room)


def _blockers(residents: Sequence[Resident], enough: Callable[[Leaving], bool]) -> Leaving:
    """Return engines that cannot leave, few and cheap, without which there would be room."""
    found = cheapest(residents, enough, lambda one: cost_of(one) + (0 if one.evictable else _STAYS))
    return tuple(one for one in found or () if not one.evictable)


def _no_seat(model: str, short: tuple[Shortage, ...], blockers: Leaving, there: Sequence[str]) -> DoesNotFit:
    where = "; ".join(
        f"{one.device}: {gib(one.needed_bytes)} needed, {gib(one.usable_bytes)} free, {gib(one.missing_bytes)} missing"
        for one in short
    )
    message = f"{model} does not fit {'now' if blockers else 'here'} ({where})."
    hints: tuple[str, ...] = ()
    if blockers:
        waits = listed([f"engine {one.engine} ({one.model})" for one in blockers])
        message = f"{message} It would fit once {waits} left, which cannot leave now (busy or pinned)."
        hints = (f"Unload or unpin {listed([one.model for one in blockers])}.",)
    if missing := [one.device for one in short if one.device not in there]:
        hints = (f"There is no {listed(missing)} here; name in `memory` what is there: {', '.join(there)}.", *hints)
    return DoesNotFit(model, bool(blockers), message, short, hints, tuple(one.engine for one in blockers))
