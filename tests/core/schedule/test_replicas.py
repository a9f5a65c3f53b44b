"""Several engines of one model: how many, and who gets which."""

from __future__ import annotations

from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.events import LoadAsked, TimePassed, UnloadAsked
from tests.core.schedule.toy import CRASH, Bench, grants, refusals, starts, stops

SMALL = {"a": 2, "b": 2, "c": 10}


def test_a_fixed_number_is_started_on_demand() -> None:
    bench = Bench(SMALL, a=ModelPolicy(replicas_min=3, replicas_max=3))
    assert starts(bench.arrive(1, "a")) == [(1, "a"), (2, "a"), (3, "a")]
    assert grants(bench.up(2)) == [(1, 2)]
    bench.up(1)
    bench.up(3)
    assert len(bench.scheduler.view("a").engines) == 3, "the others come up though nobody waits any more"


def test_more_are_started_while_requests_wait_up_to_the_limit() -> None:
    bench = Bench(SMALL, a=ModelPolicy(replicas_max=2))
    assert starts(bench.arrive(1, "a")) == [(1, "a")]
    bench.up(1)
    assert starts(bench.arrive(2, "a")) == [(2, "a")]
    assert bench.arrive(3, "a") == []
    assert grants(bench.up(2)) == [(2, 2)]


def test_they_are_started_one_after_the_other() -> None:
    bench = Bench(SMALL, a=ModelPolicy(replicas_max=3))
    bench.arrive(1, "a")
    bench.up(1)
    assert starts(bench.arrive(2, "a")) == [(2, "a")]
    assert bench.arrive(3, "a") == []
    assert starts(bench.up(2)) == [(3, "a")], "one waits, and nothing is free"


def test_a_load_with_other_options_starts_anew_and_one_without_does_not() -> None:
    bench = Bench(SMALL)
    bench.tell(LoadAsked("a"))
    bench.up(1)
    assert bench.tell(LoadAsked("a")) == []
    assert stops(bench.tell(LoadAsked("a", fresh=True))) == [1]


def test_an_extra_engine_makes_nobody_leave() -> None:
    bench = Bench({"a": 5, "b": 5}, a=ModelPolicy(replicas_max=2))
    bench.tell(LoadAsked("b"))
    bench.up(1)
    bench.arrive(1, "a")
    bench.up(2)
    assert bench.arrive(2, "a") == []
    assert stops(bench.done(1)) == []


def test_an_extra_engine_that_can_never_fit_is_no_reason_to_refuse_and_not_tried_all_the_time() -> None:
    bench = Bench({"a": 10}, {"GPU0": 10}, a=ModelPolicy(replicas_min=2, replicas_max=2, pinned=True))
    assert starts(bench.arrive(1, "a")) == [(1, "a")]
    bench.up(1)
    before = len(bench.planner.asked)
    for request in range(2, 12):
        assert refusals(bench.arrive(request, "a")) == []
    assert len(bench.planner.asked) - before <= 2


def test_leases_go_to_the_least_busy() -> None:
    bench = Bench(SMALL, a=ModelPolicy(replicas_min=2, replicas_max=2))
    bench.slots = 4
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.up(2)
    given = [grants(bench.arrive(request, "a"))[0][1] for request in range(1, 7)]
    assert given == [1, 2, 1, 2, 1, 2]
    for request in (1, 3, 5):
        bench.done(request)
    assert grants(bench.arrive(7, "a")) == [(7, 1)]


def test_a_conversation_stays_with_its_engine_while_that_has_a_free_slot() -> None:
    bench = Bench(SMALL, a=ModelPolicy(replicas_min=2, replicas_max=2))
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.up(2)
    assert grants(bench.arrive(1, "a", "x")) == [(1, 1)]
    assert grants(bench.arrive(2, "a", "y")) == [(2, 2)]
    bench.done(1)
    bench.done(2)
    assert grants(bench.arrive(3, "a", "y")) == [(3, 2)]
    assert grants(bench.arrive(4, "a", "y")) == [(4, 1)], "its engine is full"
    bench.done(3)
    bench.done(4)
    assert grants(bench.arrive(5, "a", "y")) == [(5, 1)], "the one that served it last"


def test_a_crashed_replica_is_replaced_while_the_others_go_on() -> None:
    bench = Bench(SMALL, a=ModelPolicy(replicas_min=2, replicas_max=2))
    bench.arrive(1, "a")
    bench.up(1)
    bench.up(2)
    assert starts(bench.gone(2, CRASH)) == [(3, "a")]
    assert bench.scheduler.view("a").leases == 1


def test_each_replica_ends_by_its_own_idleness_and_is_not_brought_back() -> None:
    bench = Bench(SMALL, a=ModelPolicy(replicas_min=2, replicas_max=2, ttl=10))
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.wait(5)
    bench.up(2)
    bench.wait(5)
    assert stops(bench.tell(TimePassed())) == [1]
    assert starts(bench.gone(1)) == []
    bench.wait(5)
    assert stops(bench.tell(TimePassed())) == [2]


def test_a_replica_that_left_for_another_model_is_not_brought_back_without_demand() -> None:
    bench = Bench({"a": 5, "b": 5}, a=ModelPolicy(replicas_min=2, replicas_max=2))
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.up(2)
    (left,) = stops(bench.tell(LoadAsked("b")))
    bench.gone(left)
    assert len(bench.scheduler.view("a").engines) == 1
    bench.up(3)
    bench.tell(UnloadAsked("b"))
    assert starts(bench.gone(3)) == []
    assert starts(bench.arrive(1, "a")) == [(4, "a")]


def test_a_replica_that_always_crashes_is_left_alone_while_the_others_serve() -> None:
    bench = Bench(SMALL, limits=SchedulerLimits(crash_failures=3), a=ModelPolicy(replicas_min=2, replicas_max=2))
    bench.tell(LoadAsked("a"))
    bench.up(1)
    engine = 2
    for _ in range(3):
        bench.up(engine)
        started = starts(bench.gone(engine, CRASH))
        bench.wait(100)
        started += starts(bench.tell(TimePassed()))
        engine = started[0][0] if started else 0
    assert engine == 0
    assert grants(bench.arrive(1, "a")) == [(1, 1)]
