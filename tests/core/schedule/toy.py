"""A planner by bytes that can be seen through, and a scheduler with all commands carried out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from supervisor.core.plan import DoesNotFit, Resident
from supervisor.core.schedule import ModelPolicy, Scheduler, SchedulerLimits
from supervisor.core.schedule.events import (
    CheckRoom,
    Command,
    EngineBecameReady,
    EngineGone,
    EngineId,
    EngineSpawned,
    Event,
    Failure,
    GrantLease,
    RefuseRequest,
    RequestArrived,
    RequestDone,
    RoomSeen,
    StartEngine,
    StopEngine,
)

CRASH = Failure("engine_lost", "signal 9 (SIGKILL)")
BROKEN = Failure("engine_start_failed", "exit code 1")


@dataclass(frozen=True)
class ToyPlan:
    """Where it goes and who leaves."""

    evict: tuple[EngineId, ...]
    used_bytes: Mapping[str, int]


@dataclass
class ToyPlanner:
    """Puts a model wholly on the device where the least has to leave, the first one of equals.

    room: bytes by device; changing it stands for other programs that take and give back memory.
    """

    room: dict[str, int]
    sizes: Mapping[str, int]
    asked: list[str] = field(default_factory=list)

    def __call__(self, model: str, residents: tuple[Resident, ...]) -> ToyPlan | DoesNotFit:
        """The cheapest set of residents to evict, by the time it takes to bring them back."""
        self.asked.append(model)
        size = self.sizes[model]
        found = [plan for device in self.room for plan in self._on(device, size, residents)]
        if found:
            return min(found, key=lambda plan: plan[0])[1]
        message = f"'{model}' needs {size}, there are {max(self.room.values())}."
        return DoesNotFit(model, later=size <= max(self.room.values()), message=message)

    def _on(self, device: str, size: int, residents: tuple[Resident, ...]) -> Iterable[tuple[float, ToyPlan]]:
        here = [resident for resident in residents if resident.used_bytes.get(device)]
        free = self.room[device] - sum(resident.used_bytes[device] for resident in here)
        evictable = [resident for resident in here if resident.evictable]
        for count in range(len(evictable) + 1):
            for chosen in itertools.combinations(evictable, count):
                if size <= free + sum(resident.used_bytes[device] for resident in chosen):
                    cost = sum(0.001 + resident.reload_seconds for resident in chosen)
                    yield cost, ToyPlan(tuple(resident.engine for resident in chosen), {device: size})


class Bench:
    """A scheduler under test. Looks at the machine are answered at once unless `looking` is off."""

    def __init__(
        self,
        sizes: Mapping[str, int] | None = None,
        room: Mapping[str, int] | None = None,
        limits: SchedulerLimits | None = None,
        **policies: ModelPolicy,
    ) -> None:
        self.planner = ToyPlanner(dict(room or {"GPU0": 10}), sizes or dict.fromkeys("abc", 10))
        self.policies = policies
        self.scheduler = Scheduler(self.planner, lambda model: self.policies.get(model, ModelPolicy()), limits)
        self.now = 100.0
        self.looking = True
        self.slots = 1

    def tell(self, *events: Event) -> list[Command]:
        """The commands of these events, without the looks at the machine that were answered."""
        done: list[Command] = []
        todo = list(events)
        while todo:
            for command in self.scheduler.handle(todo.pop(0), self.now):
                if isinstance(command, CheckRoom) and self.looking:
                    todo.append(RoomSeen(command.engine))
                else:
                    done.append(command)
        return done

    def arrive(self, request: int, model: str, affinity: str | None = None) -> list[Command]:
        return self.tell(RequestArrived(request, model, affinity))

    def done(self, request: int) -> list[Command]:
        return self.tell(RequestDone(request))

    def up(self, engine: int, slots: int | None = None) -> list[Command]:
        """The engine becomes ready."""
        return self.tell(EngineSpawned(engine), EngineBecameReady(engine, slots or self.slots))

    def gone(self, engine: int, failure: Failure | None = None) -> list[Command]:
        return self.tell(EngineGone(engine, failure))

    def wait(self, seconds: float) -> None:
        """Let time go by without telling."""
        self.now += seconds


def starts(commands: Iterable[Command]) -> list[tuple[int, str]]:
    return [(command.engine, command.model) for command in commands if isinstance(command, StartEngine)]


def stops(commands: Iterable[Command]) -> list[int]:
    return [command.engine for command in commands if isinstance(command, StopEngine)]


def grants(commands: Iterable[Command]) -> list[tuple[int, int]]:
    return [(command.request, command.engine) for command in commands if isinstance(command, GrantLease)]


def refusals(commands: Iterable[Command]) -> list[tuple[int, str]]:
    return [(command.request, command.failure.code) for command in commands if isinstance(command, RefuseRequest)]
