"""Room for one model, clients for several: a simulation in which loads and answers take time and nobody may starve."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from supervisor.core.schedule import ModelPolicy, Scheduler, SchedulerLimits
from supervisor.core.schedule.events import (
    CheckRoom,
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

SWAP_WAIT = 5.0
LOAD = 1.0
SLOTS = 2


@dataclass(frozen=True)
class Client:
    """Asks for its model again and again: `think` seconds after each answer, which takes `work` seconds."""

    model: str
    think: float
    work: float


class Simulation:
    """Discrete events around one scheduler; keeps who waited how long and whether the bound was kept."""

    def __init__(self, clients: list[Client], priorities: dict[str, int] | None = None) -> None:
        models = sorted({client.model for client in clients})
        policies = {model: ModelPolicy(priority=(priorities or {}).get(model, 0)) for model in models}
        limits = SchedulerLimits(max_swap_wait=SWAP_WAIT)
        self.scheduler = Scheduler(ToyPlanner({"GPU0": 10}, dict.fromkeys(models, 10)), policies.__getitem__, limits)
        self.clients = clients
        self.now = 0.0
        self.todo: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.waiting: dict[int, tuple[float, Client]] = {}
        self.models: dict[int, str] = {}
        self.waits: dict[str, list[float]] = {model: [] for model in models}
        self.wake: float | None = None
        self.swaps = 0
        self.overtaken: list[tuple[int, int]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.todo, (self.now + seconds, next(self.order), call))

    def run(self, seconds: float) -> None:
        for client in self.clients:
            self.later(client.think, lambda client=client: self.ask(client))  # type: ignore[misc]  # a bound default
        while self.todo and self.todo[0][0] <= seconds:
            self.now, _, call = heapq.heappop(self.todo)
            call()

    def ask(self, client: Client) -> None:
        request = next(self.order)
        self.waiting[request] = self.now, client
        self.tell(RequestArrived(request, client.model))

    def tell(self, event: Event) -> None:
        for command in self.scheduler.handle(event, self.now):
            match command:
                case CheckRoom(engine):
                    self.later(0.0, lambda engine=engine: self.tell(RoomSeen(engine)))  # type: ignore[misc]  # as above
                case StartEngine(engine, model):
                    self.swaps += 1
                    self.models[engine] = model
                    self.later(0.0, lambda engine=engine: self.tell(EngineSpawned(engine)))  # type: ignore[misc]  # as above
                    self.later(LOAD, lambda engine=engine: self.tell(EngineBecameReady(engine, SLOTS)))  # type: ignore[misc]  # as above
                case StopEngine(engine):
                    self.later(0.1, lambda engine=engine: self.tell(EngineGone(engine)))  # type: ignore[misc]  # as above
                case GrantLease(request):
                    self.granted(request, at_ready=isinstance(event, EngineBecameReady))
        wake = self.scheduler.next_wake
        if wake is not None and wake != self.wake:
            self.wake = wake
            self.later(max(0.0, wake - self.now), lambda: self.tell(TimePassed()))

    def granted(self, request: int, *, at_ready: bool) -> None:
        arrived, client = self.waiting.pop(request)
        self.waits[client.model].append(self.now - arrived)
        if not at_ready:  # those who fill a fresh engine's slots delay nobody by a turn
            self.overtaken += [
                (request, other)
                for other, (since, one) in self.waiting.items()
                if one.model != client.model and since < arrived and self.now > since + SWAP_WAIT + 1e-6
            ]
        self.later(client.work, lambda: self.finished(request, client))

    def finished(self, request: int, client: Client) -> None:
        self.tell(RequestDone(request))
        self.later(client.think, lambda: self.ask(client))

    @property
    def longest(self) -> float:
        still = [self.now - since for since, _ in self.waiting.values()]
        return max([*still, *(wait for waits in self.waits.values() for wait in waits)], default=0.0)


clients = st.builds(Client, model=st.sampled_from("abc"), think=st.floats(0.001, 3.0), work=st.floats(0.01, 2.0))


@settings(max_examples=60, deadline=None)
@given(st.lists(clients, min_size=2, max_size=9), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)))
def test_nobody_starves_and_nobody_is_overtaken_for_longer_than_the_bound(
    everybody: list[Client], priorities: dict[str, int]
) -> None:
    simulation = Simulation(everybody, priorities)
    simulation.run(90.0)
    assert simulation.overtaken == []
    models = {client.model for client in everybody}
    # the bound, then at most the older ones: for each other model its batches, a drain and a load
    batches = 1 + len(everybody)
    assert simulation.longest <= SWAP_WAIT + len(models) * (LOAD + 0.2) * 2 + batches * 2.0 * 2
    assert all(simulation.waits[model] for model in models), "a model was never served"


def test_swaps_follow_the_bound_and_not_the_number_of_requests() -> None:
    """Two models under steady load, 60 s: one swap for about every `max_swap_wait`, hundreds of requests."""
    simulation = Simulation([Client(model, think=0.05, work=0.2) for model in "ab" for _ in range(3)])
    simulation.run(60.0)
    served = sum(len(waits) for waits in simulation.waits.values())
    assert served > 300
    assert simulation.swaps <= 60 / SWAP_WAIT + 2
    shares = Counter({model: len(waits) for model, waits in simulation.waits.items()})
    assert min(shares.values()) > 0.7 * max(shares.values())


class Walk(Simulation):
    """One client that asks for the models in turn, each as soon as the one before has answered."""

    def __init__(self, models: str) -> None:
        super().__init__([Client(model, think=0.0, work=0.2) for model in models])
        self.turn = itertools.cycle(self.clients)
        self.clients = [next(self.turn)]

    def finished(self, request: int, client: Client) -> None:
        self.tell(RequestDone(request))
        self.ask(next(self.turn))


def test_a_lone_client_that_walks_through_the_models_never_waits_for_the_bound() -> None:
    """Nothing is held back for a model whose next request is far away."""
    simulation = Walk("abc")
    simulation.run(60.0)
    waits = [wait for waits in simulation.waits.values() for wait in waits]
    assert len(waits) > 30
    assert max(waits) == pytest.approx(LOAD + 0.1)
