"""Engines that nobody uses, and the end of the daemon."""

from __future__ import annotations

from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.events import (
    EngineOutgrown,
    LoadAsked,
    RequestArrived,
    ShutdownAsked,
    StopEngine,
    TimePassed,
)
from tests.core.schedule.toy import Bench, grants, refusals, starts, stops


def test_an_idle_engine_ends_after_its_time() -> None:
    bench = Bench(a=ModelPolicy(ttl=30))
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.wait(20)
    bench.arrive(1, "a")
    bench.wait(10)
    assert bench.tell(TimePassed()) == [], "not while it works"
    assert not bench.scheduler.next_wake
    bench.wait(100)
    assert bench.done(1) == []
    assert bench.scheduler.next_wake == bench.now + 30
    bench.scheduler.view("a")  # looking keeps nothing
    bench.wait(30)
    assert bench.tell(TimePassed()) == [StopEngine(1, idle=True)]
    assert bench.gone(1) == []


def test_the_view_says_when_an_idle_engine_will_end() -> None:
    bench = Bench(a=ModelPolicy(ttl=30))
    bench.tell(LoadAsked("a"))
    assert bench.scheduler.view("a").expires_at is None, "it is not idle while it loads"
    bench.up(1)
    assert bench.scheduler.view("a").expires_at == bench.now + 30
    bench.arrive(1, "a")
    assert bench.scheduler.view("a").expires_at is None, "nor while it works"
    bench.wait(5)
    bench.done(1)
    assert bench.scheduler.view("a").expires_at == bench.now + 30


def test_without_a_time_it_stays() -> None:
    bench = Bench()
    bench.tell(LoadAsked("a"))
    bench.up(1)
    assert bench.scheduler.next_wake is None
    bench.wait(1e9)
    assert bench.tell(TimePassed()) == []


def test_a_pinned_engine_stays_for_ever() -> None:
    bench = Bench(a=ModelPolicy(ttl=1, pinned=True))
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.wait(100)
    assert bench.tell(TimePassed()) == []


def test_shutdown_lets_requests_end_within_the_limit() -> None:
    bench = Bench(sizes={"a": 3, "b": 3, "c": 3, "d": 10}, limits=SchedulerLimits(drain=10))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    bench.up(2)
    bench.tell(LoadAsked("c"))
    bench.up(3)
    bench.arrive(4, "d")
    assert stops(bench.tell(ShutdownAsked())) == [3], "d only waits for its room"
    assert refusals(bench.tell(RequestArrived(5, "a"))) == [(5, "shutting_down")]
    assert bench.tell(LoadAsked("a")) == []
    assert stops(bench.done(1)) == [1]
    assert bench.scheduler.next_wake == bench.now + 10
    bench.wait(10)
    assert bench.tell(TimePassed()) == [StopEngine(2)]
    for engine in (1, 2, 3):
        bench.gone(engine)
    assert bench.scheduler.idle


def test_the_second_shutdown_stops_at_once_even_what_is_stopping() -> None:
    bench = Bench(sizes={"a": 3, "b": 3})
    bench.arrive(1, "a")
    bench.up(1)
    bench.tell(LoadAsked("b"))
    assert stops(bench.tell(ShutdownAsked())) == [2]
    assert bench.tell(ShutdownAsked()) == [StopEngine(1, now=True), StopEngine(2, now=True)]


def test_shutdown_now_refuses_who_waits_and_stops_everything() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    commands = bench.tell(ShutdownAsked(now=True))
    assert refusals(commands) == [(2, "shutting_down")]
    assert stops(commands) == [1]
    assert grants(bench.done(1)) == []


def test_an_engine_that_outgrew_its_plan_starts_anew_once_it_is_idle() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    assert bench.tell(EngineOutgrown(1)) == []
    assert bench.done(1) == [StopEngine(1, idle=True)]
    assert starts(bench.gone(1)) == [(2, "a")]
    bench.up(2)
    bench.wait(1000)
    assert bench.tell(TimePassed()) == []


def test_an_idle_engine_that_outgrew_its_plan_starts_anew_at_once_and_a_dead_one_not() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    bench.done(1)
    assert bench.tell(EngineOutgrown(1)) == [StopEngine(1, idle=True)]
    assert bench.tell(EngineOutgrown(7)) == []


def test_a_copy_takes_the_place_of_one_that_outgrew_its_plan_at_once_where_there_is_room() -> None:
    bench = Bench({"a": 2}, a=ModelPolicy(replicas_min=2, replicas_max=3))
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.up(2)
    ordered = bench.tell(EngineOutgrown(1))
    assert (stops(ordered), starts(ordered)) == ([1], [(3, "a")])
    assert bench.tell(TimePassed()) == []
