"""The scheduler by hand, and in random order against its promises."""

from __future__ import annotations

from collections.abc import Iterable

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from supervisor.core.events import (
    Command,
    EngineBecameReady,
    EngineGone,
    EngineSpawned,
    Event,
    Failure,
    GrantLease,
    LoadAsked,
    RefuseRequest,
    RequestArrived,
    RequestDone,
    ShutdownAsked,
    StartEngine,
    StopEngine,
    UnloadAsked,
)
from supervisor.core.lifecycle import EngineState
from supervisor.core.schedule import STOPPING_DOWN, UNLOADED, Scheduler

BROKEN = Failure("engine_start_failed", "exit code 1")


def play(scheduler: Scheduler, events: Iterable[Event]) -> list[Command]:
    """The commands of the last event."""
    commands: list[Command] = []
    for event in events:
        commands = scheduler.handle(event, 0.0)
    return commands


READY_1 = (RequestArrived(1, "a"), EngineSpawned(1), EngineBecameReady(1))


def test_a_request_for_an_unloaded_model_starts_one_engine_and_waits() -> None:
    scheduler = Scheduler()
    assert play(scheduler, [RequestArrived(1, "a")]) == [StartEngine(1, "a")]
    assert play(scheduler, [RequestArrived(2, "a")]) == []
    assert play(scheduler, [EngineSpawned(1), EngineBecameReady(1)]) == [GrantLease(1, 1), GrantLease(2, 1)]


def test_a_ready_engine_is_granted_at_once() -> None:
    assert play(Scheduler(), [*READY_1, RequestArrived(2, "a")]) == [GrantLease(2, 1)]


def test_a_failed_start_refuses_everybody_who_waits_and_the_next_request_tries_again() -> None:
    scheduler = Scheduler()
    play(scheduler, [RequestArrived(1, "a"), RequestArrived(2, "a"), EngineSpawned(1)])
    assert play(scheduler, [EngineGone(1, BROKEN)]) == [RefuseRequest(1, BROKEN), RefuseRequest(2, BROKEN)]
    assert scheduler.view("a").state is EngineState.FAILED
    assert scheduler.view("a").failure == BROKEN
    assert play(scheduler, [RequestArrived(3, "a")]) == [StartEngine(2, "a")]
    assert scheduler.view("a").failure is None


def test_a_load_that_nobody_waits_for_is_stopped() -> None:
    assert play(Scheduler(), [RequestArrived(1, "a"), EngineSpawned(1), RequestDone(1)]) == [StopEngine(1)]


def test_a_load_asked_for_by_command_goes_on_without_waiters() -> None:
    scheduler = Scheduler()
    assert play(scheduler, [LoadAsked("a"), RequestArrived(1, "a"), EngineSpawned(1), RequestDone(1)]) == []
    assert play(scheduler, [EngineBecameReady(1)]) == []
    assert scheduler.view("a").state is EngineState.READY


def test_unload_waits_for_running_requests_and_takes_no_new_ones() -> None:
    scheduler = Scheduler()
    assert play(scheduler, [*READY_1, UnloadAsked("a")]) == []
    assert scheduler.view("a").state is EngineState.DRAINING
    assert play(scheduler, [RequestArrived(2, "a")]) == []
    assert play(scheduler, [RequestDone(1)]) == [StopEngine(1)]
    assert play(scheduler, [EngineGone(1)]) == [StartEngine(2, "a")], "the waiter gets a fresh engine"


def test_unload_now_stops_a_busy_engine() -> None:
    assert play(Scheduler(), [*READY_1, UnloadAsked("a", now=True)]) == [StopEngine(1)]


def test_unload_of_a_draining_engine_can_be_hurried() -> None:
    assert play(Scheduler(), [*READY_1, UnloadAsked("a"), UnloadAsked("a", now=True)]) == [StopEngine(1)]


def test_unload_during_the_load_refuses_the_waiters() -> None:
    scheduler = Scheduler()
    assert play(scheduler, [RequestArrived(1, "a"), UnloadAsked("a")]) == [RefuseRequest(1, UNLOADED), StopEngine(1)]
    assert play(scheduler, [EngineGone(1)]) == []
    assert scheduler.view("a").state is EngineState.STOPPED


def test_ready_after_the_order_to_stop_grants_nothing() -> None:
    scheduler = Scheduler()
    play(scheduler, [LoadAsked("a"), EngineSpawned(1), UnloadAsked("a"), RequestArrived(1, "a")])
    assert play(scheduler, [EngineBecameReady(1)]) == []
    assert play(scheduler, [EngineGone(1)]) == [StartEngine(2, "a")]


def test_a_crash_is_remembered_and_late_leases_of_the_dead_engine_do_no_harm() -> None:
    scheduler = Scheduler()
    crash = Failure("engine_lost", "signal 9 (SIGKILL)")
    assert play(scheduler, [*READY_1, EngineGone(1, crash)]) == []
    assert scheduler.view("a").state is EngineState.FAILED
    assert play(scheduler, [RequestArrived(2, "a")]) == [StartEngine(2, "a")]
    assert play(scheduler, [RequestDone(1)]) == []
    assert play(scheduler, [EngineSpawned(2), EngineBecameReady(2)]) == [GrantLease(2, 2)]
    assert scheduler.view("a").leases == 1


def test_shutdown_refuses_and_stops_everything() -> None:
    scheduler = Scheduler()
    play(scheduler, [*READY_1, RequestArrived(2, "b")])
    assert play(scheduler, [ShutdownAsked()]) == [StopEngine(1), RefuseRequest(2, STOPPING_DOWN), StopEngine(2)]
    assert play(scheduler, [RequestArrived(3, "a")]) == [RefuseRequest(3, STOPPING_DOWN)]
    assert play(scheduler, [ShutdownAsked()]) == []
    play(scheduler, [EngineGone(1), EngineGone(2)])
    assert scheduler.idle


MODELS = st.sampled_from(["a", "b", "c"])


class AnyOrder(RuleBasedStateMachine):
    """Requests, loads, unloads, deaths and clients that leave, in any order the outside world can produce."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.next_request = 0
        self.open: dict[int, str] = {}  # requests that are neither answered nor over, by model
        self.leased: dict[int, int] = {}  # request → engine
        self.starting: set[int] = set()
        self.spawned: set[int] = set()
        self.ready: set[int] = set()
        self.stopping: set[int] = set()
        self.model_of: dict[int, str] = {}

    def tell(self, event: Event) -> None:
        for command in self.scheduler.handle(event, 0.0):
            match command:
                case StartEngine(engine, model):
                    assert model not in {self.model_of[other] for other in self.alive}, "two engines for one model"
                    self.model_of[engine] = model
                    self.starting.add(engine)
                case StopEngine(engine):
                    assert engine in self.alive - self.stopping, "stopped twice, or not alive"
                    assert isinstance(event, UnloadAsked | ShutdownAsked) or engine not in self.leased.values()
                    self.stopping.add(engine)
                case GrantLease(request, engine):
                    assert engine in self.ready - self.stopping, "granted an engine that is not ready"
                    assert self.open.pop(request) == self.model_of[engine]
                    self.leased[request] = engine
                case RefuseRequest(request, _):
                    self.open.pop(request)  # KeyError: answered twice

    @property
    def alive(self) -> set[int]:
        return self.starting | self.spawned | self.ready

    @rule(model=MODELS)
    def request(self, model: str) -> None:
        self.next_request += 1
        self.open[self.next_request] = model
        self.tell(RequestArrived(self.next_request, model))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.open)))
        del self.open[request]
        self.tell(RequestDone(request))

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.leased)))
        del self.leased[request]
        self.tell(RequestDone(request))

    @rule(model=MODELS)
    def load(self, model: str) -> None:
        self.tell(LoadAsked(model))

    @rule(model=MODELS, now=st.booleans())
    def unload(self, model: str, now: bool) -> None:
        self.tell(UnloadAsked(model, now))

    @precondition(lambda self: self.starting)
    @rule(data=st.data())
    def spawn(self, data: st.DataObject) -> None:
        engine = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.remove(engine)
        self.spawned.add(engine)
        self.tell(EngineSpawned(engine))

    @precondition(lambda self: self.spawned)
    @rule(data=st.data())
    def become_ready(self, data: st.DataObject) -> None:
        engine = data.draw(st.sampled_from(sorted(self.spawned)))
        self.spawned.remove(engine)
        self.ready.add(engine)
        self.tell(EngineBecameReady(engine))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        engine = data.draw(st.sampled_from(sorted(self.alive)))
        told = engine in self.stopping
        for group in (self.starting, self.spawned, self.ready, self.stopping):
            group.discard(engine)
        self.tell(EngineGone(engine, None if told else BROKEN))

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        waited_for = {self.model_of[engine] for engine in self.alive}
        assert set(self.open.values()) <= waited_for, "a request waits for a model that has no engine"

    def teardown(self) -> None:
        """After a shutdown everything ends and nobody is left without an answer."""
        self.tell(ShutdownAsked())
        assert not self.open
        for engine in sorted(self.alive):
            assert engine in self.stopping
            self.tell(EngineGone(engine))
        assert self.scheduler.idle


TestAnyOrder = AnyOrder.TestCase
