"""Swaps that serve many: who gets the room, and how long what is loaded stays while requests gather."""

from __future__ import annotations

import pytest

from supervisor.core.events import LoadAsked, TimePassed
from supervisor.core.schedule import SchedulerLimits
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


def test_what_answers_newcomers_stays_while_requests_for_others_gather() -> None:
    bench = Bench(room=ROOM, limits=SchedulerLimits(max_linger=10))
    loaded(bench, "a", "b")
    answered(bench, "a", range(1, 7))
    answered(bench, "b", range(11, 17))
    assert stops(bench.arrive(20, "c")) == [], "a is idle, but others may want what is loaded"
    assert stops(bench.arrive(21, "c")) == []
    answered(bench, "b", range(31, 33))
    bench.wait(LOAD)
    assert stops(bench.tell(TimePassed())) != []


def test_gathering_ends_whatever_newcomers_do() -> None:
    """The bound is twice what the swap and the way back take; the load of c is not known and counts as 10 s."""
    bench = Bench(room=ROOM, limits=SchedulerLimits(max_linger=10))
    loaded(bench, "a", "b")
    answered(bench, "a", range(1, 7))
    bench.arrive(20, "c")
    began = bench.now
    for request in range(100, 1000):
        bench.arrive(request, "b")
        bench.wait(0.1)
        if stops(bench.done(request)):
            break
        bench.wait(0.1)
    assert bench.now - began == pytest.approx(2 * (LOAD + 10), abs=0.3)


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
