"""Plan where models go, here and now: by the newest look at the machine and what is known of each model.

The pool has a model read (`learn`) and the machine looked at (`see_room`) before the scheduler asks for a plan. What
`plan` answers then is computed from these alone: it reads nothing and waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
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
from supervisor.core.engine_output.failures import OPTION
from supervisor.core.launch import LaunchOptions, Placed
from supervisor.core.launch.fallback import Fallback, next_fallback, unguessed, with_fallback, without_draft
from supervisor.core.learn.history import Observation, learned
from supervisor.core.learn.identity import Start
from supervisor.core.memory import Refusal
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.plan import DoesNotFit, Forecast, Placement, PlanRequest, Policy, Resident, forecast, plan
from supervisor.core.schedule.events import Failure
from supervisor.errors import ModelFileError, ModelLoadFailed, QueueFull, SupervisorError, file_refused
from supervisor.models.subject import Subject
from supervisor.planning.learning import intent_of, start_of
from supervisor.probe.drivers import holding

MOST_WAITING = 64
T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """A model that was read, with what earlier starts of it showed and the digest of the engine that will run it.

    The options of `entry` are those of the `fallback` that failed starts have led to.
    """

    entry: ModelEntry
    subject: Subject
    observations: tuple[Observation, ...] = ()
    engine: str = ""
    build: int | None = None
    fallback: Fallback = field(default_factory=Fallback)


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
        return self.decided(known, options, residents)[0]

    def decided(
        self, known: Known, options: LaunchOptions, residents: Sequence[Resident]
    ) -> tuple[Placement | DoesNotFit, bool]:
        """Return the plan, and whether what was guessed, if anything, counts in it."""
        found = self._taught(known, options, residents, known.fallback.short)
        guessed = known.fallback.killed and known.fallback.shortages == 1
        dropped = guessed and isinstance(found, DoesNotFit) and not found.later
        if dropped:
            found = self._taught(known, options, residents, {})
        if isinstance(found, DoesNotFit) and known.fallback.steps:
            found = replace(found, message=" ".join((found.message, *known.fallback.steps)))
        return found, not dropped

    def forecast(self, known: Known, residents: Sequence[Resident], scale: tuple[int, int]) -> Forecast:
        """Return the forecast of a quantisation of known size: `scale` is (its size, that of `known`)."""
        request = known.subject.request(known.entry.id, known.entry.options)
        return forecast(request, self.budgets, residents, self.rules.policy, scale)

    def placed(self, placement: Placement) -> Placed:
        """Return what an engine must be told so that it goes where the plan says."""
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
        request = replace(known.subject.request(known.entry.id, options), short=short)
        found = self._plan(request, residents)
        if isinstance(found, Placement) and known.observations:
            taught = learned(known.observations, self._start(known, found), found.estimate)
            found = self._plan(replace(request, learned=taught), residents) if taught else found
        return found

    def _plan(self, request: PlanRequest, residents: Sequence[Resident]) -> Placement | DoesNotFit:
        return plan(request, self.budgets, residents, self.rules.policy)

    def _start(self, known: Known, placement: Placement) -> Start:
        intent = intent_of(placement, known.entry.options, self.devices_of(placement))
        return start_of(known.subject.identity, intent, known.engine, known.build)


Look = Callable[[bool, Collection[str]], Machine]
"""Looks at the machine: whether without what is remembered of probes; names of devices on which our engines are."""


class Planner:
    """The planner that answers the scheduler.

    Args:
        read: opens a model's files and looks up what is known of it.
        machine: looks at the machine; called in a thread.
        holdings: what our engines hold.
    """

    def __init__(
        self,
        registry: Registry,
        read: Callable[[ModelEntry], Awaitable[Known]],
        machine: Look,
        rules: Rules,
        holdings: Callable[[], Sequence[Holding]],
    ) -> None:
        self._registry = registry
        self._read = read
        self._look_at = machine
        self._rules = rules
        self._holdings = holdings
        self._known: dict[str, Known] = {}
        self._fallbacks: dict[str, tuple[LaunchOptions, Fallback]] = {}
        self._seen: tuple[Machine, Budgets] | None = None
        self._aside = ThreadPoolExecutor(1, "plan")
        self._waiting = 0

    def adopt(self, rules: Rules) -> None:
        """Plan by other rules from the next look on."""
        self._rules = rules

    async def learn(self, model: str) -> None:
        """Read the model's files. Raise what reading them does."""
        entry = self._registry.find(model)
        fallback = self.fallback(entry)
        try:
            known = await self._read(_with_fallback(entry, fallback))
        except ModelFileError:
            fallback = without_draft(entry.options, fallback)
            known = await self._read(_with_fallback(entry, fallback))
            self._fallbacks[entry.id] = entry.options, fallback
        self._known[entry.id] = replace(known, fallback=fallback)

    def fallback(self, entry: ModelEntry) -> Fallback:
        """Return the changes to the model's start after failed ones; other options begin anew."""
        options, fallback = self._fallbacks.get(entry.id, (entry.options, Fallback()))
        return fallback if options == entry.options else Fallback()

    def failed(self, model: str, placement: Placement, failure: Failure) -> bool:
        """Take in that a start of the model failed.

        Return whether there is something else to try, for the next `learn`.
        """
        entry = self._registry.find(model)
        names = self.sight.placed(placement).names
        found = next_fallback(self.fallback(entry), failure, entry.options, placement, names)
        if found is not None:
            self._fallbacks[entry.id] = entry.options, found
        return found is not None

    def forget(self, model: str) -> None:
        """Start the model again as its options say."""
        self._fallbacks.pop(model, None)

    async def see_room(self) -> Mapping[str, int]:
        """Look at the machine; return the free bytes by device name."""
        machine = (await self.look()).machine
        return {device.name: device.free_bytes for device in machine.devices} | {"CPU": machine.host.available_bytes}

    async def look(self, *, again: bool = False) -> Sight:
        """Return the machine now; `again`: without what is remembered of probes."""
        ours = tuple(self._holdings())
        machine, measured = await asyncio.to_thread(self._look, again, ours)
        self._seen = machine, budgets(machine, measured, self._rules.reserves)
        return self.sight

    @property
    def sight(self) -> Sight:
        """Result of the last look. Raises RuntimeError where none was taken: that is a fault of the program."""
        if self._seen is None:
            raise RuntimeError("the machine has to be looked at before anything is planned on it")
        return Sight(*self._seen, self._rules)

    def known(self, model: str) -> Known:
        """Return the model as it was read."""
        return self._known[model]

    def plan(self, model: str, residents: Sequence[Resident]) -> Placement | DoesNotFit:
        """Return where the model would go beside these engines.

        Raises InvalidRequest for options that cannot be planned, ModelLoadFailed for those that no engine starts with,
        ModelFileError for a file that none serves.
        """
        known = self._known[model]
        found, by_guess = self.sight.decided(known, known.entry.options, residents)
        if isinstance(found, Placement) and not by_guess and model in self._fallbacks:
            options, fallback = self._fallbacks[model]
            self._fallbacks[model] = options, unguessed(fallback)
        if isinstance(found, DoesNotFit) and found.refusal is not None:
            raise refused(found.refusal)
        return found

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


def _with_fallback(entry: ModelEntry, fallback: Fallback) -> ModelEntry:
    return replace(entry, options=with_fallback(entry.options, fallback))


def refused(refusal: Refusal) -> SupervisorError:
    """Return the error of a load that llama-server would refuse: for its file, or for an option."""
    return file_refused(refusal.code, refusal.message) or ModelLoadFailed(refusal.message, code=OPTION)
