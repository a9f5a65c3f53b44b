"""Requests: joining a load, waiting for a slot, being refused, leaving."""

from __future__ import annotations

import pytest

from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.events import (
    CheckRoom,
    EngineBecameReady,
    EngineSpawned,
    Failure,
    GrantLease,
    LoadAsked,
    PolicyChanged,
    RefuseRequest,
    RoomSeen,
    StartEngine,
    StopEngine,
    UnloadAsked,
)
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.queue import retry_seconds
from tests.core.schedule.toy import Bench, ToyPlan, grants, refusals, starts, stops


def test_a_start_is_planned_by_a_look_at_the_machine() -> None:
    bench = Bench()
    bench.looking = False
    assert bench.arrive(1, "a") == [CheckRoom(1, "a", {})]
    assert bench.planner.asked == []
    assert bench.tell(RoomSeen(1)) == [StartEngine(1, "a", ToyPlan((), {"GPU0": 10}))]


def test_requests_for_a_loading_model_join_the_one_load() -> None:
    bench = Bench()
    bench.slots = 2
    assert starts(bench.arrive(1, "a")) == [(1, "a")]
    assert bench.arrive(2, "a") == []
    assert bench.up(1) == [GrantLease(1, 1), GrantLease(2, 1)]


def test_more_requests_than_slots_wait_and_are_served_in_order() -> None:
    bench = Bench()
    bench.slots = 2
    for request in (1, 2, 3, 4):
        bench.arrive(request, "a")
    assert grants(bench.up(1)) == [(1, 1), (2, 1)]
    assert bench.scheduler.view("a").waiting == 2
    assert bench.done(2) == [GrantLease(3, 1)]
    assert bench.done(3) == [GrantLease(4, 1)]


def test_concurrency_counts_instead_of_the_slots() -> None:
    bench = Bench(a=ModelPolicy(concurrency=3))
    for request in (1, 2, 3, 4):
        bench.arrive(request, "a")
    assert len(grants(bench.up(1, slots=1))) == 3


def test_an_engine_that_does_not_tell_its_slots_has_llama_servers_default() -> None:
    bench = Bench()
    for request in range(1, 7):
        bench.arrive(request, "a")
    assert len(grants(bench.tell(EngineSpawned(1), EngineBecameReady(1)))) == 4


def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    bench = Bench(limits=SchedulerLimits(max_waiting_model=2))
    bench.arrive(1, "a")
    bench.up(1)
    bench.wait(8)
    bench.done(1)  # so requests take 8 s
    for request in (2, 3, 4):
        bench.arrive(request, "a")
    (refusal,) = bench.arrive(5, "a")
    assert isinstance(refusal, RefuseRequest)
    assert (refusal.request, refusal.failure.code, refusal.failure.retry_after) == (5, "queue_full", 24.0)
    assert bench.scheduler.view("a").waiting == 2
    bench.done(2)
    assert bench.arrive(6, "a") == [], "there is room in the queue again"


def test_the_queue_is_limited_in_all() -> None:
    bench = Bench(limits=SchedulerLimits(max_waiting=2))
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    assert refusals(bench.arrive(3, "c")) == [(3, "queue_full")]


def test_a_free_slot_is_no_queue() -> None:
    bench = Bench(limits=SchedulerLimits(max_waiting_model=1))
    bench.arrive(1, "a")
    bench.up(1, slots=3)
    assert grants(bench.arrive(2, "a")) == grants([GrantLease(2, 1)])
    assert grants(bench.arrive(3, "a")) == [(3, 1)]


def test_a_load_that_nobody_waits_for_is_stopped() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.tell(EngineSpawned(1))
    assert bench.done(1) == [StopEngine(1)]


def test_a_waiter_that_leaves_before_its_room_was_made_starts_nothing() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    bench.done(2)
    assert bench.done(1) == []
    assert bench.scheduler.view("a").state is EngineState.READY
    assert bench.scheduler.view("b").state is EngineState.STOPPED


def test_a_load_asked_for_by_command_goes_on_without_waiters() -> None:
    bench = Bench()
    bench.tell(LoadAsked("a"))
    bench.arrive(1, "a")
    bench.tell(EngineSpawned(1))
    assert bench.done(1) == []
    bench.tell(EngineBecameReady(1, 1))
    assert bench.scheduler.view("a").state is EngineState.READY


def test_unload_waits_for_running_requests_and_takes_no_new_ones() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.up(1)
    assert bench.tell(UnloadAsked("a")) == []
    assert bench.scheduler.view("a").state is EngineState.DRAINING
    assert bench.arrive(2, "a") == []
    assert bench.done(1) == [StopEngine(1, idle=True)]
    assert starts(bench.gone(1)) == [(2, "a")], "the waiter gets a fresh engine"


def test_unload_now_stops_a_busy_engine_and_hurries_a_draining_one() -> None:
    for before in ([], [UnloadAsked("a")]):
        bench = Bench()
        bench.arrive(1, "a")
        bench.up(1)
        bench.tell(*before)
        assert bench.tell(UnloadAsked("a", now=True)) == [StopEngine(1)]


def test_unload_during_the_load_refuses_the_waiters() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    commands = bench.tell(UnloadAsked("a"))
    assert (refusals(commands), stops(commands)) == ([(1, "load_cancelled")], [1])
    assert bench.gone(1) == []
    assert bench.scheduler.view("a").state is EngineState.STOPPED


def test_unload_may_serve_those_who_wait_before() -> None:
    bench = Bench()
    for request in (1, 2):
        bench.arrive(request, "a")
    assert bench.tell(UnloadAsked("a", serves_waiting=True)) == []
    assert bench.scheduler.view("a").leaves
    assert grants(bench.up(1)) == [(1, 1)]
    assert grants(bench.done(1)) == [(2, 1)]
    assert bench.scheduler.view("a").state is EngineState.DRAINING
    assert not bench.scheduler.view("a").leaves
    assert bench.done(2) == [StopEngine(1, idle=True)]


def test_of_an_unload_that_serves_those_who_wait_nothing_is_left_where_nobody_waits() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.tell(EngineSpawned(1))
    bench.tell(UnloadAsked("a", serves_waiting=True))
    assert bench.done(1) == [StopEngine(1)]
    assert bench.gone(1) == []
    bench.tell(LoadAsked("a"))
    bench.up(2)
    assert bench.tell(UnloadAsked("a", serves_waiting=True)) == [StopEngine(2, idle=True)]


def test_what_is_loaded_by_command_after_such_an_unload_stays() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.tell(UnloadAsked("a", serves_waiting=True), LoadAsked("a"))
    bench.up(1)
    assert bench.done(1) == []
    assert bench.scheduler.view("a").state is EngineState.READY


def test_why_the_load_of_one_that_is_to_leave_failed_is_told_and_kept() -> None:
    bench = Bench()
    bench.looking = False
    bench.arrive(1, "a")
    bench.tell(UnloadAsked("a", serves_waiting=True))
    assert refusals(bench.tell(RoomSeen(1, Failure("gguf_invalid", "cut off")))) == [(1, "gguf_invalid")]
    seen = bench.scheduler.view("a")
    assert (seen.state, seen.failure, seen.leaves) == (EngineState.FAILED, Failure("gguf_invalid", "cut off"), False)


def test_a_fresh_load_drains_the_old_engine_and_keeps_who_waits() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    bench.arrive(2, "a")
    bench.up(1)
    assert bench.tell(LoadAsked("a", fresh=True)) == []
    assert stops(bench.done(1)) == [1]
    assert starts(bench.gone(1)) == [(2, "a")]
    assert grants(bench.up(2)) == [(2, 2)]


def test_an_unreadable_model_refuses_with_the_reason() -> None:
    bench = Bench()
    bench.looking = False
    bench.arrive(1, "a")
    assert refusals(bench.tell(RoomSeen(1, Failure("gguf_invalid", "cut off")))) == [(1, "gguf_invalid")]
    assert bench.scheduler.view("a").state is EngineState.FAILED


def test_a_request_that_is_served_at_once_brings_up_what_its_model_lacks() -> None:
    bench = Bench(sizes={"a": 5}, a=ModelPolicy())
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.policies["a"] = ModelPolicy(replicas_min=2, replicas_max=2)
    bench.tell(PolicyChanged())
    commands = bench.arrive(1, "a")
    assert (grants(commands), starts(commands)) == ([(1, 1)], [(2, "a")])


@pytest.mark.parametrize(
    ("waiting", "slots", "busy", "load", "seconds"),
    [
        (3, 1, 8.0, 0.0, 24.0),
        (3, 4, 8.0, 0.0, 6.0),
        (3, 4, 8.0, 30.0, 36.0),
        (1, 1, 0.01, 0.0, 1.0),
        (8, 4, None, 0.0, 2.0),
        (512, 1, 60.0, 0.0, 60.0),
        (1, 3, 10.0, 0.0, 4.0),
    ],
)
def test_the_time_to_come_back_is_that_of_those_who_wait(
    waiting: int, slots: int, busy: float | None, load: float, seconds: float
) -> None:
    assert retry_seconds(waiting, slots, busy, load) == seconds


def test_a_full_queue_before_a_load_counts_the_load() -> None:
    bench = Bench(limits=SchedulerLimits(max_waiting_model=2))
    bench.arrive(1, "a")
    bench.arrive(2, "a")
    (refusal,) = bench.arrive(3, "a")
    assert isinstance(refusal, RefuseRequest)
    assert refusal.failure.retry_after is not None
    assert refusal.failure.retry_after > 10
