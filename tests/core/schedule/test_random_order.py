"""The scheduler against everything the outside world can do, in random order, on devices with too little memory."""

from __future__ import annotations

import itertools
from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from supervisor.core.schedule import ModelPolicy, Scheduler, SchedulerLimits
from supervisor.core.schedule.events import (
    CheckRoom,
    EngineBecameReady,
    EngineGone,
    EngineHung,
    EngineOutgrown,
    EngineSpawned,
    Event,
    Failure,
    GrantLease,
    LaunchChanged,
    LoadAsked,
    PolicyChanged,
    RefuseRequest,
    RequestArrived,
    RequestDone,
    RoomSeen,
    ShutdownAsked,
    StartEngine,
    StopEngine,
    TimePassed,
    UnloadAsked,
)
from supervisor.core.schedule.lifecycle import EngineState
from tests.core.schedule.toy import BROKEN, ToyPlanner

ROOM = {"GPU0": 10, "GPU1": 6}
SIZES = {"a": 4, "b": 6, "c": 10, "d": 3, "e": 2, "huge": 11, "pinned": 3, "solo": 2}
POLICIES = {
    "a": ModelPolicy(replicas_min=2, replicas_max=3, groups=frozenset({"ae"})),
    "b": ModelPolicy(priority=1, ttl=20.0),
    "d": ModelPolicy(replicas_max=2, preload=True),
    "e": ModelPolicy(groups=frozenset({"ae", "other"})),
    "pinned": ModelPolicy(pinned=True),
    "solo": ModelPolicy(alone=True),
}
OTHERS = {
    **POLICIES,
    "a": ModelPolicy(replicas_max=2),
    "d": ModelPolicy(groups=frozenset({"bd"})),
    "b": ModelPolicy(groups=frozenset({"bd"}), priority=1),
    "c": ModelPolicy(alone=True),
}
LIMITS = SchedulerLimits(max_waiting_model=4, max_waiting=8, max_swap_wait=10.0, crash_failures=3, drain=5.0)
MODELS = st.sampled_from(sorted(SIZES))


class AnyOrder(RuleBasedStateMachine):
    """The world: what is open, leased, alive, and what the devices really hold."""

    def __init__(self) -> None:
        super().__init__()
        self.planner = ToyPlanner(dict(ROOM), SIZES)
        self.scheduler = Scheduler(self.planner, self.policy_of, LIMITS)
        self.policies = POLICIES
        self.now = 1000.0
        self.next_request = 0
        self.open: dict[int, str] = {}  # neither answered nor over, by model
        self.leased: dict[int, int] = {}  # request → engine
        self.checks: dict[int, CheckRoom] = {}
        self.starting: dict[int, StartEngine] = {}
        self.spawned: dict[int, StartEngine] = {}
        self.ready: dict[int, StartEngine] = {}
        self.stopping: set[int] = set()
        self.outgrown: set[int] = set()
        self.ended_by_people: set[int] = set()
        self.leaving: set[str] = set()  # unloaded by people once nobody waits
        self.hung: set[int] = set()
        self.left_over: dict[int, StartEngine] = {}  # gone, but the device still shows their memory
        self.closing = False

    def policy_of(self, model: str) -> ModelPolicy:
        return self.policies.get(model, ModelPolicy())

    # what the scheduler orders

    def tell(self, event: Event) -> None:
        for command in self.scheduler.handle(event, self.now):
            match command:
                case CheckRoom(engine):
                    assert engine not in self.alive
                    self.checks[engine] = command
                case StartEngine(engine):
                    self.start(command)
                case StopEngine(engine, now):
                    self.stop(event, engine, now)
                case GrantLease(request, engine):
                    assert engine in set(self.ready) - self.stopping, "granted what is not ready"
                    assert self.open.pop(request) == self.ready[engine].model
                    self.leased[request] = engine
                    assert Counter(self.leased.values())[engine] <= 2, "more requests than slots"
                case RefuseRequest(request, failure):
                    served = isinstance(event, UnloadAsked) and event.serves_waiting
                    assert not served or failure.code != "load_cancelled"
                    del self.open[request]  # KeyError: answered twice

    def start(self, command: StartEngine) -> None:
        assert command.engine not in self.alive
        assert not self.closing
        self.starting[command.engine] = command
        held: Counter[str] = Counter()
        for one in (*self.alive.values(), *self.left_over.values()):
            held.update(one.plan.used_bytes)
        assert all(held[device] <= size for device, size in ROOM.items()), f"too much on a device: {held}"
        mine = self.policy_of(command.model)
        for other in {one.model for one in self.alive.values()} - {command.model}:
            assert not mine.excludes(self.policy_of(other)), f"{command.model} beside {other}"

    def stop(self, event: Event, engine: int, now: bool) -> None:
        assert engine in self.alive, "stopped what does not live"
        assert engine not in self.stopping or (now and isinstance(event, ShutdownAsked)), "stopped twice"
        busy = engine in self.leased.values()
        allowed = isinstance(event, EngineHung | ShutdownAsked) or (isinstance(event, UnloadAsked) and event.now)
        assert not busy or allowed or self.closing, "stopped while leased"
        if self.alive[engine].model == "pinned" and engine in self.ready and not isinstance(event, EngineHung):
            wanted = engine in self.ended_by_people | self.outgrown or self.alive[engine].model in self.leaving
            assert self.closing or wanted, "a pinned engine made room"
        self.stopping.add(engine)

    @property
    def alive(self) -> dict[int, StartEngine]:
        return {**self.starting, **self.spawned, **self.ready}

    @rule()
    def nothing_was_left_undone(self) -> None:
        """Some events are taken without looking at everything: nothing may be found when everything is looked at."""
        assert self.scheduler.handle(TimePassed(), self.now) == []

    # what people do

    @rule(model=MODELS, affinity=st.sampled_from([None, "x", "y"]))
    def request(self, model: str, affinity: str | None) -> None:
        self.next_request += 1
        self.open[self.next_request] = model
        self.tell(RequestArrived(self.next_request, model, affinity))
        assert not self.closing or self.next_request not in self.open

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

    @rule(model=MODELS, fresh=st.booleans())
    def load(self, model: str, fresh: bool) -> None:
        if fresh:
            self.people_end(model)
        self.leaving.discard(model)
        self.tell(LoadAsked(model, fresh))

    @rule(model=MODELS, how=st.sampled_from([{}, {"now": True}, {"serves_waiting": True}]))
    def unload(self, model: str, how: dict[str, bool]) -> None:
        self.people_end(model)
        if "serves_waiting" in how:
            self.leaving.add(model)
        self.tell(UnloadAsked(model, **how))

    @rule(model=MODELS)
    def change_launch(self, model: str) -> None:
        self.people_end(model)
        self.tell(LaunchChanged(model))

    @rule(policies=st.sampled_from([POLICIES, OTHERS]))
    def change_policies(self, policies: dict[str, ModelPolicy]) -> None:
        self.policies = policies
        self.tell(PolicyChanged())

    def people_end(self, model: str) -> None:
        self.ended_by_people |= {engine for engine, command in self.alive.items() if command.model == model}

    # what time and the machine do

    @rule(seconds=st.floats(0.01, 30))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        wake = self.scheduler.next_wake
        if wake is not None and wake <= self.now:
            self.tell(TimePassed())

    @precondition(lambda self: self.checks)
    @rule(data=st.data(), unreadable=st.integers(0, 9).map(lambda n: n == 0))
    def look(self, data: st.DataObject, unreadable: bool) -> None:
        self.finish_check(data.draw(st.sampled_from(sorted(self.checks))), unreadable)

    def finish_check(self, engine: int, unreadable: bool = False) -> None:
        """A look ends with what is free, whether all that was waited for is or not."""
        del self.checks[engine]
        self.planner.room = dict(ROOM)
        for one in self.left_over.values():
            for device, size in one.plan.used_bytes.items():
                self.planner.room[device] -= size
        self.tell(RoomSeen(engine, Failure("gguf_invalid", "cut off") if unreadable else None))

    @precondition(lambda self: self.left_over)
    @rule()
    def memory_comes_back(self) -> None:
        self.left_over.clear()

    @precondition(lambda self: self.starting)
    @rule(data=st.data())
    def spawn(self, data: st.DataObject) -> None:
        engine = data.draw(st.sampled_from(sorted(self.starting)))
        self.spawned[engine] = self.starting.pop(engine)
        self.tell(EngineSpawned(engine))

    @precondition(lambda self: self.spawned)
    @rule(data=st.data())
    def become_ready(self, data: st.DataObject) -> None:
        engine = data.draw(st.sampled_from(sorted(self.spawned)))
        self.ready[engine] = self.spawned.pop(engine)
        self.tell(EngineBecameReady(engine, 2))

    @precondition(lambda self: set(self.ready) - self.hung)
    @rule(data=st.data())
    def hang(self, data: st.DataObject) -> None:
        engine = data.draw(st.sampled_from(sorted(set(self.ready) - self.hung)))
        self.hung.add(engine)
        self.tell(EngineHung(engine, Failure("engine_hung", "silent")))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), again=st.booleans())
    def die(self, data: st.DataObject, again: bool) -> None:
        engine = data.draw(st.sampled_from(sorted(self.alive)))
        self.end(engine, BROKEN, again=again and engine not in self.stopping)

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def outgrow(self, data: st.DataObject) -> None:
        engine = data.draw(st.sampled_from(sorted(self.ready)))
        self.outgrown.add(engine)
        self.tell(EngineOutgrown(engine))

    def end(self, engine: int, failure: Failure | None, *, again: bool = False) -> None:
        command = self.alive[engine]
        for group in (self.starting, self.spawned, self.ready):
            group.pop(engine, None)
        self.left_over[engine] = command
        told = engine in self.stopping
        self.stopping.discard(engine)
        self.leased = {request: one for request, one in self.leased.items() if one != engine}
        self.tell(EngineGone(engine, None if told else failure, again))

    @precondition(lambda self: self.stopping)
    @rule(data=st.data())
    def obey(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.stopping))), None)

    @precondition(lambda self: not self.closing)
    @rule(often=st.integers(0, 30))
    def shut_down(self, often: int) -> None:
        if often == 0:
            self.closing = True
            self.tell(ShutdownAsked())

    # what must hold

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        for model in set(self.open.values()):
            view = self.scheduler.view(model)
            backing_off = self.scheduler.next_wake is not None and not view.engines
            assert view.engines or backing_off, f"'{model}' is waited for and nothing is under way"

    @invariant()
    def no_rivals_stay_together(self) -> None:
        leaving = {EngineState.DRAINING, EngineState.STOPPING}
        staying = {
            model
            for model in set(SIZES) - {"pinned"}
            for one in self.scheduler.view(model).engines
            if one.engine in self.alive and one.state not in leaving
        }
        for model, other in itertools.permutations(staying, 2):
            assert not self.policy_of(model).excludes(self.policy_of(other)), f"{model} beside {other}"

    @invariant()
    def the_books_agree(self) -> None:
        views = [self.scheduler.view(model) for model in SIZES]
        assert sum(view.leases for view in views) == len(self.leased)
        assert sum(view.waiting for view in views) == len(self.open)
        shown = {one.engine: one.state for view in views for one in view.engines}
        assert set(self.alive) <= set(shown)
        assert {shown[engine] for engine in set(shown) - set(self.alive)} <= {EngineState.RESERVED}

    def everything_goes_well(self) -> None:
        """One round in which all that can happen happens as it should."""
        self.left_over.clear()
        for engine in sorted(self.checks):
            self.finish_check(engine)
        for engine in sorted(self.starting):
            if engine not in self.stopping:
                self.spawned[engine] = self.starting.pop(engine)
                self.tell(EngineSpawned(engine))
        for engine in sorted(self.spawned):
            if engine not in self.stopping:
                self.ready[engine] = self.spawned.pop(engine)
                self.tell(EngineBecameReady(engine, 2))
        for engine in sorted(self.stopping):
            self.end(engine, None)
        for request in sorted(self.leased):
            del self.leased[request]
            self.tell(RequestDone(request))
        self.now = max(self.now + 0.1, self.scheduler.next_wake or 0.0)
        self.tell(TimePassed())

    def teardown(self) -> None:
        """Whatever happened: with a world that works from now on everybody is served, and a shutdown ends all."""
        for _ in range(40):
            if not self.open and not self.leased:
                break
            self.everything_goes_well()
        assert not self.open, "a request starves"
        self.closing = True
        self.tell(ShutdownAsked(now=True))
        for engine in sorted(self.alive):
            assert engine in self.stopping
            self.end(engine, None)
        assert not self.leased
        assert self.scheduler.idle


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
