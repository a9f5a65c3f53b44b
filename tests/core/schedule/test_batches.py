"""Swaps that serve many: who gets the room, and how long what is loaded stays while requests gather."""

from __future__ import annotations

import pytest

from supervisor.core.schedule import SchedulerLimits
from supervisor.core.schedule.events import LoadAsked, TimePassed
from tests.core.schedule.toy import Bench, grants, starts, stops

LOAD = 4.0
ROOM = {"GPU0": 20}


def loaded(bench: Bench, *models: str) -> None:
    for number, model in enumerate(models, 1):
        bench.tell(LoadAsked(model))
        bench.wait(LOAD)
        bench.up(number)


def test_the_model_that_most_wait_for_gets_the_room() -> None:
    bench = Bench()
    loaded(bench, "a")
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    for request in (3, 4, 5):
        bench.arrive(request, "c")
    bench.done(1)
    assert starts(bench.gone(1)) == [(3, "c")]


def test_of_two_with_as_many_the_older_one_gets_it() -> None:
    bench = Bench()
    loaded(bench, "a")
    bench.arrive(1, "a")
    for request, model in ((2, "b"), (3, "c"), (4, "c"), (5, "b")):
        bench.wait(0.1)
        bench.arrive(request, model)
    bench.done(1)
    assert starts(bench.gone(1)) == [(2, "b")]


@pytest.mark.parametrize(("seconds", "first"), [(1.0, "c"), (5.0, "b")])
def test_what_all_have_waited_counts_together(seconds: float, first: str) -> None:
    """One that has waited for long goes before two that came just now, but not for ever."""
    bench = Bench()
    loaded(bench, "a")
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    bench.wait(seconds)
    bench.arrive(3, "c")
    bench.arrive(4, "c")
    bench.wait(3.0)
    bench.done(1)
    assert [model for _, model in starts(bench.gone(1))] == [first]


def test_who_waited_too_long_goes_before_the_many() -> None:
    bench = Bench(limits=SchedulerLimits(max_swap_wait=10))
    loaded(bench, "a")
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    bench.wait(10)
    for request in (3, 4, 5):
        bench.arrive(request, "c")
    bench.done(1)
    assert starts(bench.gone(1)) == [(2, "b")]


def answered(bench: Bench, model: str, requests: range) -> None:
    """Requests for a loaded model, one after another, each answered at once."""
    for request in requests:
        bench.arrive(request, model)
        bench.wait(0.1)
        bench.done(request)
        bench.wait(0.1)


def busy(bench: Bench) -> None:
    """Three clients of two loaded models; their requests were open at a time once, and come one after another now."""
    loaded(bench, "a", "b")
    for request, model in enumerate("aab", 1):
        bench.arrive(request, model)
    for request in (1, 2, 3):
        bench.done(request)
    answered(bench, "a", range(11, 17))
    answered(bench, "b", range(21, 27))


def test_what_answers_newcomers_stays_while_requests_for_others_gather() -> None:
    bench = Bench(room=ROOM, limits=SchedulerLimits(max_linger=10))
    busy(bench)
    assert stops(bench.arrive(30, "c")) == [], "a is idle, but the others may want what is loaded"
    answered(bench, "b", range(31, 33))
    bench.wait(LOAD / 2)
    assert stops(bench.tell(TimePassed())) != []


def test_nothing_stays_once_everybody_waits() -> None:
    bench = Bench(room=ROOM, limits=SchedulerLimits(max_linger=10))
    busy(bench)
    assert stops(bench.arrive(30, "c")) == []
    assert stops(bench.arrive(31, "c")) == []
    assert stops(bench.arrive(32, "c")) == [1], "no more were open at a time of late: who should come?"


def test_a_request_that_is_served_at_once_may_be_the_last_that_was_waited_for() -> None:
    bench = Bench(room=ROOM, limits=SchedulerLimits(max_linger=10))
    busy(bench)
    bench.arrive(30, "c")
    assert stops(bench.arrive(31, "b")) == []
    bench.done(31)
    bench.arrive(32, "c")
    commands = bench.arrive(33, "b")
    assert (grants(commands), stops(commands)) == ([(33, 2)], [1])


def test_how_many_were_open_at_a_time_is_forgotten_after_two_minutes() -> None:
    bench = Bench(room=ROOM, limits=SchedulerLimits(max_linger=10))
    busy(bench)
    for request in range(100, 700):
        answered(bench, "b", range(request, request + 1))
    assert stops(bench.arrive(30, "c")) == [1]


def test_gathering_ends_whatever_newcomers_do() -> None:
    """After what the swap and the way back take; c was never loaded and is taken to be like the others."""
    bench = Bench(room=ROOM, limits=SchedulerLimits(max_linger=10))
    busy(bench)
    bench.arrive(30, "c")
    bench.wait(0.1)
    began = bench.now
    for request in range(100, 1000):
        ended = stops(bench.arrive(request, "b"))
        bench.wait(0.1)
        if ended or stops(bench.done(request)):
            break
        bench.wait(0.1)
    assert bench.now - began == pytest.approx(2 * LOAD, abs=0.3)


def test_nobody_waits_for_newcomers_where_there_are_none() -> None:
    """One client that goes round: keeping what it left would only cost it time."""
    bench = Bench()
    loaded(bench, "a")
    engine = 1
    for number, model in enumerate("bcabcabc", 1):
        assert stops(bench.arrive(number, model)) == [engine]
        (started,) = starts(bench.gone(engine))
        engine = started[0]
        bench.wait(LOAD)
        assert grants(bench.up(engine)) == [(number, engine)]
        bench.wait(0.1)
        bench.done(number)
