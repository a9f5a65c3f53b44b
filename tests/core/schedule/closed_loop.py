"""A scheduler in simulated time: clients wait for an answer, think and ask again; loads take long, answers little."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from supervisor.core.schedule import ModelPolicy, Scheduler, SchedulerLimits
from supervisor.core.schedule.events import (
    CheckRoom,
    Command,
    EngineBecameReady,
    EngineGone,
    EngineSpawned,
    Event,
    GrantLease,
    RequestArrived,
    RequestDone,
    RoomSeen,
    StartEngine,
    StopEngine,
    TimePassed,
)
from tests.core.schedule.toy import ToyPlanner

LOOK, STOP, ANSWER, THINK = 0.02, 0.1, 0.04, (0.1, 0.6)  # seconds
_SLOTS = 8
_MOST_STEPS = 200_000

Choice = Callable[[int, int, random.Random], str]
"""Client, number of its request, its own dice → the model."""


@dataclass
class Loop:
    """One run.

    Attributes:
        sizes, room: of the models, and what there is; a load takes a second for every ten.
        cores: loads at a time that do not slow each other.
        loads, waits: engines started, and the seconds from each request to its answer.
    """

    sizes: Mapping[str, int]
    room: int
    limits: SchedulerLimits = field(default_factory=SchedulerLimits)
    cores: int = 2
    now: float = 0.0
    loads: int = 0
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        planner = ToyPlanner({"GPU0": self.room}, self.sizes)
        self._scheduler = Scheduler(planner, lambda _: ModelPolicy(), self.limits)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._loading: dict[int, float] = {}
        self._granted: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count(1)

    def run(self, clients: int, requests: int, choose: Choice, seed: int) -> None:
        """All clients to their end."""
        for client in range(clients):
            dice = random.Random(f"{seed} {client}")
            models = [choose(client, number, dice) for number in range(requests)]
            self._after(client / 1000, partial(self._ask, iter(models), dice))
        for _ in range(_MOST_STEPS):
            if len(self.waits) == clients * requests:
                return
            self._step()
        raise AssertionError("it does not end")

    def _ask(self, models: Iterator[str], dice: random.Random) -> None:
        model = next(models, None)
        if model is None:
            return
        request, began = next(self._numbers), self.now

        def answered() -> None:
            self.waits.append(self.now - began)
            self._after(dice.uniform(*THINK), lambda: self._ask(models, dice))
            self._tell(RequestDone(request))

        self._granted[request] = lambda: self._after(ANSWER, answered)
        self._tell(RequestArrived(request, model))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), do))

    def _tell(self, event: Event) -> None:
        for command in self._scheduler.handle(event, self.now):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case CheckRoom(engine=engine):
                self._after(LOOK, lambda: self._tell(RoomSeen(engine)))
            case StartEngine(engine=engine, model=model):
                self.loads += 1
                self._loading[engine] = self.sizes[model] / 10
                self._tell(EngineSpawned(engine))
            case StopEngine(engine=engine):
                self._loading.pop(engine, None)
                self._after(STOP, lambda: self._tell(EngineGone(engine)))
            case GrantLease(request=request):
                self._granted[request]()
            case _:
                raise AssertionError(command)

    def _step(self) -> None:
        """The next thing that happens."""
        speed = min(1.0, self.cores / len(self._loading)) if self._loading else 1.0
        first = min(self._loading, key=self._loading.__getitem__, default=None)
        wake = self._scheduler.next_wake
        times = {
            "due": self._due[0][0] if self._due else None,
            "loaded": None if first is None else self.now + self._loading[first] / speed,
            "wake": wake,
        }
        known = {name: max(time, self.now) for name, time in times.items() if time is not None}
        what = min(known, key=known.__getitem__)
        for engine in self._loading:
            self._loading[engine] -= (known[what] - self.now) * speed
        self.now = known[what]
        if what == "due":
            heapq.heappop(self._due)[2]()
        elif what == "wake":
            self._tell(TimePassed())
        elif first is not None:
            del self._loading[first]
            self._tell(EngineBecameReady(first, _SLOTS))
