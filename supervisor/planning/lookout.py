"""Look at the machine: what there is at one moment, by which rules it is used, and where models would go on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from supervisor.core.devices import (
    Budgets,
    Device,
    Holding,
    Machine,
    Reserves,
    budgets,
    names_in_child,
    rpc_endpoints,
    visible_env,
)
from supervisor.core.launch import Placed
from supervisor.core.learn.history import learned
from supervisor.core.learn.identity import Start
from supervisor.core.options import LaunchOptions
from supervisor.core.plan import DoesNotFit, Forecast, Placement, PlanRequest, Policy, Resident, forecast, plan
from supervisor.errors import QueueFull
from supervisor.planning.known import Known
from supervisor.planning.learning import intent_of, start_of
from supervisor.pool.living import Living
from supervisor.probe.drivers import holding
from supervisor.system.shared import Shared
from supervisor.system.worker_thread import WorkerThread

MOST_WAITING = 64
T = TypeVar("T")


@dataclass(frozen=True)
class Rules:
    """The configuration's rules about contexts and the memory kept back on devices."""

    policy: Policy = field(default_factory=Policy)
    reserves: Reserves | None = None


@dataclass(frozen=True)
class Sight:
    """The result of a look at the machine, and the rules. It never changes, so a thread may plan by it for a while."""

    machine: Machine
    budgets: Budgets
    rules: Rules

    def decide(self, known: Known, options: LaunchOptions, residents: Sequence[Resident]) -> Placement | DoesNotFit:
        """Return a plan, made again with what earlier starts teach about the first one.

        That a killed engine lacked memory is a guess: where nothing fits by it, the plan is made without.
        Raises InvalidRequest for options that cannot be planned.
        """
        return self.decide_with_guess(known, options, residents)[0]

    def decide_with_guess(
        self, known: Known, options: LaunchOptions, residents: Sequence[Resident]
    ) -> tuple[Placement | DoesNotFit, bool]:
        """Return the plan, and whether a guess, if there was one, counts in it."""
        found = self._taught(known, options, residents, known.fallback.short)
        guessed = known.fallback.only_guessed
        dropped = guessed and isinstance(found, DoesNotFit) and not found.later
        if dropped:
            found = self._taught(known, options, residents, {})
        if isinstance(found, DoesNotFit) and known.fallback.steps:
            found = replace(found, message=" ".join((found.message, *known.fallback.steps)))
        return found, not dropped

    def forecast(self, known: Known, residents: Sequence[Resident], scale: tuple[int, int]) -> Forecast:
        """Return the forecast of a quantisation of known size: `scale` is (its size, that of `known`)."""
        request = known.info.request(known.entry.id, known.entry.options)
        return forecast(request, self.budgets, residents, self.rules.policy, scale)

    def placed(self, placement: Placement) -> Placed:
        """Return the placement in the form that an engine must be told."""
        every = self.machine.devices
        chosen = self.devices_of(placement)
        names = dict(zip(placement.devices, names_in_child(chosen, every), strict=True))
        return Placed(placement, names, visible_env(chosen, every), rpc_endpoints(chosen))

    def devices_of(self, placement: Placement) -> tuple[Device, ...]:
        """Return the devices of a placement, in its order."""
        named = {device.name: device for device in self.machine.devices}
        return tuple(named[name] for name in placement.devices)

    def _taught(
        self, known: Known, options: LaunchOptions, residents: Sequence[Resident], short: Mapping[str, int]
    ) -> Placement | DoesNotFit:
        request = replace(known.info.request(known.entry.id, options), short=short)
        found = self._plan(request, residents)
        if isinstance(found, Placement) and known.observations:
            taught = learned(known.observations, self._start(known, found), found.estimate)
            found = self._plan(replace(request, learned=taught), residents) if taught else found
        return found

    def _plan(self, request: PlanRequest, residents: Sequence[Resident]) -> Placement | DoesNotFit:
        return plan(request, self.budgets, residents, self.rules.policy)

    def _start(self, known: Known, placement: Placement) -> Start:
        intent = intent_of(placement, known.entry.options, self.devices_of(placement))
        return start_of(known.info.identity, intent, known.engine, known.build)


Look = Callable[[bool, Collection[str]], Machine]
"""Looks at the machine: whether without what is remembered of probes; names of devices on which our engines are."""


class Lookout:
    """The one that looks at the machine, and computes plans by what was seen beside the loop.

    Args:
        machine: looks at the machine; called in a thread.
        rules: those in force, asked whenever they count.
    """

    def __init__(self, machine: Look, rules: Callable[[], Rules]) -> None:
        self._look_at = machine
        self._rules = rules
        self._seen: tuple[Machine, Budgets] | None = None
        self._looks: Mapping[bool, Shared[None]] = {again: Shared() for again in (False, True)}
        self._aside = WorkerThread("plan")
        self._waiting = 0

    async def look(self, living: Living, *, again: bool = False) -> Sight:
        """Return the machine now, with what our engines hold; `again`: without what is remembered of probes.

        One look serves all who have asked before it began: probes take long, and take turns.
        """
        await self._looks[again].get(partial(self._take_a_look, living, again))
        return self.sight

    async def _take_a_look(self, living: Living, again: bool) -> None:
        ours = tuple(living.holdings())
        machine, measured = await asyncio.to_thread(self._look, again, ours)
        self._seen = machine, budgets(machine, measured, self._rules().reserves)

    async def see_room(self, living: Living) -> Mapping[str, int]:
        """Look at the machine; return the free bytes by device name."""
        machine = (await self.look(living)).machine
        return {device.name: device.free_bytes for device in machine.devices} | {"CPU": machine.host.available_bytes}

    @property
    def sight(self) -> Sight:
        """Result of the last look. Raises RuntimeError where none was taken: that is a fault of the program."""
        if self._seen is None:
            raise RuntimeError("the machine has to be looked at before anything is planned on it")
        return Sight(*self._seen, self._rules())

    @property
    def machine(self) -> Machine | None:
        """The machine as it was at the last look, if there was one."""
        return self._seen[0] if self._seen else None

    async def aside(self, work: Callable[[], T]) -> T:
        """Return the result of a plan or an estimate, computed in a thread beside the loop that relays.

        One at a time: more threads would take turns with the loop more often, and be no faster. Raises QueueFull where
        too many wait.
        """
        if self._waiting >= MOST_WAITING:
            raise QueueFull(f"{MOST_WAITING} plans and estimates wait already. Try again in a moment.", retry_after=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._aside, work)
        finally:
            self._waiting -= 1

    def _look(self, again: bool, ours: Sequence[Holding]) -> tuple[Machine, list[Holding]]:
        return self._look_at(again, {name for one in ours for name in one.planned_bytes}), [
            replace(one, host_bytes=holding(one.pid).host_bytes) if one.pid else one for one in ours
        ]
