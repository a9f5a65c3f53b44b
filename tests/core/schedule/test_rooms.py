"""Room on devices: who leaves for whom, and when memory is given on."""

from __future__ import annotations

import pytest

from supervisor.core.plan import DoesNotFit, Resident
from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.events import (
    CheckRoom,
    LoadAsked,
    PolicyChanged,
    RefuseRequest,
    RoomSeen,
    StartEngine,
    StopEngine,
    TimePassed,
)
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.errors import ModelFileError
from tests.core.schedule.toy import Bench, ToyPlan, grants, refusals, starts, stops

TWO = {"GPU0": 10, "GPU1": 10}


def loaded(bench: Bench, *models: str) -> None:
    """Load them in order; engine numbers follow."""
    for number, model in enumerate(models, 1):
        bench.tell(LoadAsked(model))
        bench.up(number)


def test_what_fits_beside_the_others_evicts_nobody() -> None:
    bench = Bench(sizes={"a": 6, "b": 4})
    loaded(bench, "a")
    assert starts(bench.arrive(1, "b")) == [(2, "b")]


def test_an_idle_engine_leaves_and_the_room_is_given_on_when_it_is_gone() -> None:
    bench = Bench()
    loaded(bench, "a")
    assert bench.arrive(1, "b") == [StopEngine(1, idle=True)]
    assert bench.scheduler.view("b").state is EngineState.RESERVED
    assert starts(bench.gone(1)) == [(2, "b")]


def test_memory_of_ended_engines_is_waited_for_and_planned_again() -> None:
    bench = Bench()
    loaded(bench, "a")
    bench.arrive(1, "b")
    bench.looking = False
    assert bench.gone(1) == [CheckRoom(2, "b", {"GPU0": 10})]
    bench.planner.room["GPU0"] = 8  # somebody else was quicker
    (refusal,) = bench.tell(RoomSeen(2))
    assert isinstance(refusal, RefuseRequest)
    assert refusal.failure.code == "does_not_fit"
    assert "needs 10, there are 8" in refusal.failure.message


def test_only_as_much_leaves_as_is_needed() -> None:
    bench = Bench(sizes={"a": 3, "b": 6, "c": 6})
    loaded(bench, "a", "b")
    assert stops(bench.arrive(1, "c")) == [2]


def test_a_pinned_engine_never_leaves() -> None:
    bench = Bench(a=ModelPolicy(pinned=True))
    loaded(bench, "a")
    assert refusals(bench.arrive(1, "b")) == [(1, "does_not_fit")]
    bench.policies.clear()
    bench.tell(PolicyChanged())
    assert stops(bench.arrive(2, "b")) == [1]


def test_what_can_never_fit_is_refused_at_once_and_disturbs_nobody() -> None:
    bench = Bench(sizes={"a": 10, "huge": 11})
    loaded(bench, "a")
    assert refusals(bench.arrive(1, "huge")) == [(1, "does_not_fit")]
    assert bench.scheduler.view("a").state is EngineState.READY
    assert bench.scheduler.view("huge").state is EngineState.FAILED


def test_a_busy_engine_drains_when_the_waiters_turn_has_come() -> None:
    bench = Bench(limits=SchedulerLimits(max_swap_wait=10))
    bench.arrive(1, "a")
    bench.up(1, slots=2)
    bench.arrive(2, "b")
    assert grants(bench.arrive(3, "a")) == [(3, 1)], "a later request saves a swap"
    assert bench.scheduler.next_wake == bench.now + 10
    bench.wait(10)
    assert bench.tell(TimePassed()) == []
    assert bench.scheduler.view("a").state is EngineState.DRAINING
    assert bench.arrive(4, "a") == []
    assert bench.done(1) == []
    assert stops(bench.done(3)) == [1]
    assert starts(bench.gone(1)) == [(2, "b")]
    assert grants(bench.up(2)) == [(2, 2)]
    assert bench.done(2) == [StopEngine(2, idle=True)], "then a comes back"
    assert starts(bench.gone(2)) == [(3, "a")]
    assert grants(bench.up(3)) == [(4, 3)]


def test_an_engine_that_drains_for_somebody_who_left_serves_again() -> None:
    bench = Bench(limits=SchedulerLimits(max_swap_wait=10))
    bench.arrive(1, "a")
    bench.up(1, slots=1)
    bench.arrive(2, "b")
    bench.wait(10)
    bench.tell(TimePassed())
    bench.arrive(3, "a")
    assert bench.scheduler.view("a").state is EngineState.DRAINING
    assert bench.done(2) == []
    assert bench.scheduler.view("a").state is EngineState.READY
    assert grants(bench.done(1)) == [(3, 1)]


def test_higher_priority_does_not_wait_for_later_requests() -> None:
    bench = Bench(b=ModelPolicy(priority=1))
    bench.arrive(1, "a")
    bench.up(1, slots=2)
    bench.arrive(2, "b")
    assert bench.scheduler.view("a").state is EngineState.DRAINING
    assert bench.arrive(3, "a") == []


def test_lower_priority_is_served_once_it_is_overdue() -> None:
    bench = Bench(a=ModelPolicy(priority=1), limits=SchedulerLimits(max_swap_wait=10))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    bench.wait(10)
    bench.tell(TimePassed())
    assert bench.scheduler.view("a").state is EngineState.DRAINING


def test_of_those_who_wait_the_higher_priority_gets_the_room_first() -> None:
    bench = Bench(c=ModelPolicy(priority=1))
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    bench.arrive(3, "c")
    bench.up(1)
    bench.done(1)
    assert starts(bench.gone(1)) == [(3, "c")]


def test_a_loading_engine_is_not_thrown_out_before_it_was_of_use() -> None:
    bench = Bench(b=ModelPolicy(priority=5), limits=SchedulerLimits(max_swap_wait=1))
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    bench.wait(100)
    assert bench.tell(TimePassed()) == []
    assert grants(bench.up(1)) == [(1, 1)]
    assert stops(bench.done(1)) == [1]


def test_room_that_is_being_made_is_not_taken_by_later_ones() -> None:
    bench = Bench(sizes={"a": 4, "b": 6, "big": 10, "small": 3}, limits=SchedulerLimits(max_swap_wait=10))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    bench.up(2)
    bench.arrive(3, "big")
    bench.wait(10)
    bench.tell(TimePassed())  # both drain
    assert stops(bench.done(2)) == [2]
    assert bench.gone(2) == []
    assert bench.arrive(4, "small") == [], "would fit beside a, in the room that is for big"
    assert stops(bench.done(1)) == [1]
    assert starts(bench.gone(1)) == [(3, "big")]


def test_who_fits_elsewhere_does_not_wait_behind_one_who_waits_for_room() -> None:
    bench = Bench(sizes={"a": 10, "b": 10, "c": 5}, room={"GPU0": 10, "GPU1": 5}, b=ModelPolicy(priority=1))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    assert starts(bench.arrive(3, "c")) == [(3, "c")]


def test_loads_on_two_devices_go_side_by_side() -> None:
    bench = Bench(room=TWO)
    assert starts(bench.arrive(1, "a")) == [(1, "a")]
    assert starts(bench.arrive(2, "b")) == [(2, "b")]
    bench.up(2)
    bench.up(1)
    assert stops(bench.tell(LoadAsked("c"))) == []
    bench.done(2)
    assert starts(bench.gone(2)) == [(3, "c")]


def test_engines_that_are_leaving_anyway_are_waited_for() -> None:
    bench = Bench(room=TWO)
    loaded(bench, "a", "b")
    assert stops(bench.tell(LoadAsked("c"))) == [1]
    assert bench.arrive(1, "a") == [StopEngine(2, idle=True)], (
        "c has the claim on the room that gets free; a needs another"
    )
    assert starts(bench.gone(1)) == [(3, "c")]
    assert starts(bench.gone(2)) == [(4, "a")]


def test_an_old_look_is_repeated_before_anything_is_done_on_its_account() -> None:
    bench = Bench(limits=SchedulerLimits(look_age=5, max_swap_wait=60))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    bench.wait(20)
    bench.looking = False
    assert bench.done(1) == [CheckRoom(2, "b", {})]
    assert stops(bench.tell(RoomSeen(2))) == [1]


def test_room_that_other_programs_take_again_and_again_is_given_up() -> None:
    sizes = {"a": 2, "b": 2, "c": 2, "d": 2, "big": 4}
    bench = Bench(sizes=sizes, limits=SchedulerLimits(room_rounds=2))
    for engine, model in enumerate("abcd", 1):
        bench.tell(LoadAsked(model))
        bench.up(engine)
    commands = bench.arrive(1, "big")
    for _ in range(2):
        (victim,) = stops(commands)
        bench.planner.room["GPU0"] -= 2
        commands = bench.gone(victim)
    assert refusals(commands) == [(1, "does_not_fit")]
    assert stops(commands) == []


def test_room_that_the_own_engines_take_again_and_again_is_waited_for() -> None:
    """However often others go first: until its turn has come, and no request is refused."""
    bench = Bench(a=ModelPolicy(priority=1), limits=SchedulerLimits(room_rounds=2, max_swap_wait=100))
    engine = 1
    bench.tell(LoadAsked("a"))
    bench.up(engine)
    bench.arrive(1, "b")
    for request in range(2, 8):
        bench.arrive(request, "a")
        commands = bench.gone(engine)
        ((engine, model),) = starts(commands)
        assert model == "a"
        bench.up(engine)
        assert refusals(bench.done(request)) == []
    bench.arrive(9, "a")
    bench.wait(101)
    ((engine, model),) = starts(bench.gone(engine))
    assert model == "b"
    assert grants(bench.up(engine)) == [(1, engine)]


def test_a_planner_that_cannot_plan_the_model_refuses_with_its_reason() -> None:
    bench = Bench()

    def planner(model: str, residents: tuple[Resident, ...]) -> ToyPlan | DoesNotFit:
        raise ModelFileError("the header cannot be read")

    bench.scheduler._state.planner = planner
    assert refusals(bench.arrive(1, "a")) == [(1, "model_file_invalid")]


def test_a_planner_that_finds_no_set_to_evict_does_not_starve_anybody() -> None:
    bench = Bench()
    toy = bench.planner

    def planner(model: str, residents: tuple[Resident, ...]) -> ToyPlan | DoesNotFit:
        plan = toy(model, residents)
        return DoesNotFit(model, True, "not clever") if isinstance(plan, ToyPlan) and plan.evict else plan

    bench.scheduler._state.planner = planner
    loaded(bench, "a")
    assert stops(bench.arrive(1, "b")) == [1]
    assert starts(bench.gone(1)) == [(2, "b")]


@pytest.mark.parametrize("pause", [0.5, 20.0])
def test_an_idle_engine_is_kept_for_a_moment_where_its_clients_come_back_quickly(pause: float) -> None:
    bench = Bench(limits=SchedulerLimits(max_linger=2))
    bench.tell(LoadAsked("a"))
    bench.wait(5)  # what a load takes
    bench.up(1)
    for request in (1, 2, 3):
        bench.arrive(request, "a")
        bench.wait(1)
        bench.done(request)
        bench.wait(pause)
    bench.arrive(4, "a")
    bench.arrive(5, "b")
    stopped = stops(bench.done(4))
    if pause == 0.5:
        assert stopped == []
        assert bench.scheduler.next_wake == pytest.approx(bench.now + 2.0), "its clients come often: see test_batches"
        bench.wait(2.01)
        assert stops(bench.tell(TimePassed())) == [1]
    else:
        assert stopped == [1], "keeping it would cost more than loading it again"


def test_started_engines_tell_their_plan() -> None:
    bench = Bench()
    (start,) = bench.arrive(1, "a")
    assert isinstance(start, StartEngine)
    assert bench.scheduler.view("a").engines[0].plan is start.plan


def test_of_two_that_wait_too_long_the_older_one_goes_first_even_if_it_holds_the_room() -> None:
    bench = Bench(limits=SchedulerLimits(max_swap_wait=10))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "a")
    bench.wait(1)
    bench.arrive(3, "b")
    bench.wait(10)
    bench.tell(TimePassed())
    assert bench.scheduler.view("a").state is EngineState.READY
    assert grants(bench.done(1)) == [(2, 1)]
    assert bench.scheduler.view("a").state is EngineState.DRAINING


def test_time_that_nobody_told_counts_as_well() -> None:
    bench = Bench(limits=SchedulerLimits(max_swap_wait=10))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    bench.wait(1)
    bench.arrive(3, "a")
    bench.wait(9)
    commands = bench.done(1)
    assert (grants(commands), stops(commands)) == ([], [1])


def test_what_leaves_anyway_costs_the_planner_nothing() -> None:
    bench = Bench(b=ModelPolicy(priority=1))
    bench.tell(LoadAsked("a"))
    bench.wait(5)
    bench.up(1)
    bench.arrive(1, "a")
    assert [resident.reload_seconds for resident in bench.scheduler.residents(bench.now)] == [5]
    bench.arrive(2, "b")
    assert [resident.reload_seconds for resident in bench.scheduler.residents(bench.now)] == [0]


def test_an_idle_engine_is_not_kept_from_one_who_waits_too_long() -> None:
    bench = Bench(limits=SchedulerLimits(max_linger=5, max_swap_wait=3))
    bench.tell(LoadAsked("a"))
    bench.wait(10)
    bench.up(1)
    for request in (1, 2, 3):
        bench.arrive(request, "a")
        bench.done(request)
        bench.wait(2)
    bench.arrive(4, "a")
    bench.arrive(5, "b")
    bench.wait(2)
    assert stops(bench.done(4)) == []
    assert bench.scheduler.next_wake == bench.now + 1
    bench.wait(1)
    assert stops(bench.tell(TimePassed())) == [1]


def test_of_many_models_that_wait_the_first_are_planned_for_at_every_change() -> None:
    """The others are planned for once, to refuse what could never fit."""
    models = [f"m{number}" for number in range(20)]
    bench = Bench(sizes=dict.fromkeys(["a", *models], 10))
    loaded(bench, "a")
    bench.arrive(0, "a")
    for number, model in enumerate(models, 1):
        bench.arrive(number, model)
    assert set(bench.planner.asked) == {"a", *models}
    for time in (1, 2):
        bench.planner.asked.clear()
        bench.wait(1)
        bench.tell(PolicyChanged())
        assert set(bench.planner.asked) == set(models[:8]), time
