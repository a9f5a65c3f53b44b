"""Engines that end by themselves."""

from __future__ import annotations

from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.events import (
    EngineGone,
    EngineHung,
    EngineSpawned,
    Failure,
    LoadAsked,
    StopEngine,
    TimePassed,
)
from supervisor.core.schedule.lifecycle import EngineState, restart_delay
from tests.core.schedule.toy import BROKEN, CRASH, Bench, grants, refusals, starts

KEPT = ModelPolicy(pinned=True)


def test_a_failed_load_refuses_everybody_who_waits_and_the_next_request_tries_again() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.arrive(2, "a")
    bench.tell(EngineSpawned(1))
    assert refusals(bench.gone(1, BROKEN)) == [(1, BROKEN.code), (2, BROKEN.code)]
    view = bench.scheduler.view("a")
    assert (view.state, view.failure) == (EngineState.FAILED, BROKEN)
    assert starts(bench.arrive(3, "a")) == [(2, "a")]
    bench.up(2)
    assert bench.scheduler.view("a").failure is None


def test_a_crash_is_remembered_and_late_leases_of_the_dead_engine_do_no_harm() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    assert bench.gone(1, CRASH) == []
    assert bench.scheduler.view("a").state is EngineState.FAILED
    assert starts(bench.arrive(2, "a")) == [(2, "a")]
    assert bench.done(1) == []
    assert grants(bench.up(2)) == [(2, 2)]
    assert bench.scheduler.view("a").leases == 1


def test_who_waited_for_a_slot_of_a_crashed_engine_gets_a_fresh_one() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.arrive(2, "a")
    bench.up(1)
    assert starts(bench.gone(1, CRASH)) == [(2, "a")]
    assert grants(bench.up(2)) == [(2, 2)]


def test_restarts_come_later_and_later_until_the_loop_is_called_one() -> None:
    bench = Bench(a=KEPT, limits=SchedulerLimits(crash_failures=4, backoff_base=1.0))
    bench.tell(LoadAsked("a"))
    delays = []
    engine = 1
    while True:
        bench.up(engine)
        started = starts(bench.gone(engine, CRASH))
        view = bench.scheduler.view("a")
        if view.state is EngineState.FAILED:
            break
        since = bench.now
        if not started:
            assert view.state is EngineState.BACKOFF
            assert bench.scheduler.next_wake is not None
            bench.now = bench.scheduler.next_wake
            started = starts(bench.tell(TimePassed()))
        delays.append(bench.now - since)
        engine = started[0][0]
    assert delays == [0.0, 1.0, 2.0]
    assert view.failure is not None
    assert view.failure.code == "crash_loop"
    assert CRASH.message in view.failure.message
    bench.wait(10_000)
    assert bench.tell(TimePassed()) == []
    assert refusals(bench.arrive(1, "a")) == [(1, "crash_loop")]
    assert starts(bench.tell(LoadAsked("a"))) == [(engine + 1, "a")], "somebody asked"


def test_an_engine_that_was_of_use_begins_a_new_row() -> None:
    bench = Bench(a=KEPT, limits=SchedulerLimits(crash_failures=2))
    for engine in range(1, 6):
        bench.arrive(engine, "a")
        bench.up(engine)
        bench.done(engine)
        assert starts(bench.gone(engine, CRASH)) == [(engine + 1, "a")], "at once"


def test_failures_long_ago_do_not_count() -> None:
    bench = Bench(a=KEPT, limits=SchedulerLimits(crash_failures=2, crash_window=60))
    bench.tell(LoadAsked("a"))
    for engine in (1, 2, 3):
        bench.up(engine)
        assert starts(bench.gone(engine, CRASH)) == [(engine + 1, "a")]
        bench.wait(61)


def test_nobody_wants_a_crashed_model_that_nobody_waits_for() -> None:
    bench = Bench()
    bench.tell(LoadAsked("a"))
    bench.up(1)
    assert bench.gone(1, CRASH) == []
    assert bench.scheduler.next_wake is None


def test_a_request_during_the_delay_waits_for_its_end() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    bench.gone(1, CRASH)
    bench.arrive(2, "a")
    bench.up(2)
    bench.gone(2, CRASH)
    assert bench.arrive(3, "a") == []
    assert bench.scheduler.view("a").state is EngineState.BACKOFF
    bench.wait(1)
    assert starts(bench.tell(TimePassed())) == [(3, "a")]


def test_a_model_that_backs_off_for_nobody_any_more_has_failed() -> None:
    bench = Bench()
    for request in (1, 2):
        bench.arrive(request, "a")
        bench.up(request)
        bench.gone(request, CRASH)
    bench.arrive(3, "a")
    bench.done(3)
    view = bench.scheduler.view("a")
    assert (view.state, view.failure) == (EngineState.FAILED, CRASH)


def test_a_file_that_cannot_be_prepared_is_no_crash_loop() -> None:
    bench = Bench(limits=SchedulerLimits(crash_failures=2))
    missing = Failure("model_file_invalid", "not there")
    for request in range(1, 5):
        bench.arrive(request, "a")
        assert refusals(bench.gone(request, missing)) == [(request, missing.code)]


def test_a_hung_engine_gets_no_more_requests_and_is_replaced_when_it_is_gone() -> None:
    bench = Bench()
    hung = Failure("engine_hung", "silent")
    bench.arrive(1, "a")
    bench.up(1, slots=4)
    assert bench.tell(EngineHung(1, hung)) == [StopEngine(1, now=True)]
    assert bench.arrive(2, "a") == []
    assert starts(bench.gone(1)) == [(2, "a")]
    assert bench.scheduler.view("a").failure == hung
    assert grants(bench.up(2)) == [(2, 2)]


def test_delays_grow_to_their_limit() -> None:
    assert [restart_delay(attempt, 1.0, 60.0) for attempt in (1, 2, 3, 4, 8, 9, 5000)] == [0, 1, 2, 4, 60, 60, 60]


def test_a_load_that_is_tried_otherwise_keeps_those_who_wait_and_counts_as_no_crash() -> None:
    bench = Bench(limits=SchedulerLimits(crash_failures=2))
    bench.arrive(1, "a")
    for engine in range(1, 5):
        assert bench.tell(EngineSpawned(engine)) == []
        assert starts(bench.tell(EngineGone(engine, BROKEN, again=True))) == [(engine + 1, "a")]
    assert bench.scheduler.view("a").failure == BROKEN
    assert grants(bench.up(5)) == [(1, 5)]
    assert bench.scheduler.view("a").failure is None


def test_a_load_by_command_is_tried_otherwise_too_and_one_that_nobody_wants_any_more_is_not() -> None:
    bench = Bench()
    bench.tell(LoadAsked("a"), EngineSpawned(1))
    assert starts(bench.tell(EngineGone(1, BROKEN, again=True))) == [(2, "a")]
    bench = Bench()
    bench.arrive(1, "a")
    bench.tell(EngineSpawned(1))
    bench.done(1)
    assert starts(bench.tell(EngineGone(1, BROKEN, again=True))) == []


def test_a_kept_model_that_crashed_is_tried_otherwise_though_nobody_waits() -> None:
    bench = Bench(a=KEPT)
    bench.tell(LoadAsked("a"))
    bench.up(1)
    assert starts(bench.gone(1, CRASH)) == [(2, "a")]
    bench.tell(EngineSpawned(2))
    assert starts(bench.tell(EngineGone(2, BROKEN, again=True))) == [(3, "a")]


def test_an_engine_that_was_ready_is_not_tried_otherwise() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    bench.tell(EngineGone(1, CRASH, again=True))
    assert bench.scheduler.view("a").state is EngineState.FAILED
    assert starts(bench.tell(TimePassed())) == []


def test_the_view_says_when_a_model_failed_until_it_is_of_use_again() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.wait(7)
    bench.gone(1, failure=BROKEN)
    view = bench.scheduler.view("a")
    assert (view.failure, view.failed_at) == (BROKEN, bench.now)
    bench.wait(100)
    bench.tell(LoadAsked("a"))
    bench.up(2)
    assert bench.scheduler.view("a").failed_at is None


def test_nothing_is_kept_of_a_model_that_is_forgotten() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.tell(EngineSpawned(1))
    bench.scheduler.forget("a")
    assert bench.scheduler.view("a").waiting == 1  # it is in use
    bench.gone(1, BROKEN)
    assert bench.scheduler.view("a").failure == BROKEN
    bench.scheduler.forget("a")
    assert bench.scheduler.view("a").failure is None
