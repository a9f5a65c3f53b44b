"""Models that may not be loaded together: who leaves, who waits, who is refused."""

from __future__ import annotations

from supervisor.core.plan import Resident
from supervisor.core.schedule import ModelPolicy, Scheduler, SchedulerLimits, barred_by
from supervisor.core.schedule.events import LaunchChanged, PolicyChanged, TimePassed, UnloadAsked
from supervisor.core.schedule.lifecycle import EngineState
from tests.core.schedule.toy import Bench, grants, refusals, starts, stops

EITHER = ModelPolicy(groups=frozenset({"either"}))
ALONE = ModelPolicy(alone=True)
ROOMY = {"GPU0": 100}


def bench(**policies: ModelPolicy) -> Bench:
    found = Bench(room=ROOMY)
    found.policies = policies
    return found


def test_of_two_in_a_group_the_idle_one_leaves_though_there_is_room() -> None:
    both = bench(a=EITHER, b=EITHER)
    both.arrive(1, "a")
    both.up(1)
    both.done(1)
    assert stops(both.arrive(2, "b")) == [1]
    assert starts(both.gone(1)) == [(2, "b")]
    assert starts(both.arrive(3, "c")) == [(3, "c")], "who is in no group is not concerned"


def test_a_busy_one_is_not_ended_and_later_requests_for_it_are_bounded() -> None:
    both = Bench(room=ROOMY, limits=SchedulerLimits(max_swap_wait=30), a=EITHER, b=EITHER)
    both.slots = 2
    both.arrive(1, "a")
    both.up(1)
    assert stops(both.arrive(2, "b")) == []
    both.wait(31)
    assert stops(both.tell(TimePassed())) == []
    assert grants(both.arrive(3, "a")) == [], "its turn is over"
    assert stops(both.done(1)) == [1]
    assert starts(both.gone(1)) == [(2, "b")]


def test_a_model_that_runs_alone_makes_everybody_leave_and_is_made_to_leave() -> None:
    one = bench(solo=ALONE)
    one.planner.sizes = dict.fromkeys(("a", "b", "solo"), 10)
    for request, model in ((1, "a"), (2, "b")):
        one.arrive(request, model)
        one.up(request)
        one.done(request)
    assert sorted(stops(one.arrive(3, "solo"))) == [1, 2]
    assert starts(one.gone(1)) == []
    assert starts(one.gone(2)) == [(3, "solo")]
    one.up(3)
    one.done(3)
    assert stops(one.arrive(4, "a")) == [3]


def test_two_that_wait_do_not_start_together() -> None:
    both = bench(a=EITHER, b=EITHER)
    assert starts(both.arrive(1, "a")) == [(1, "a")]
    assert starts(both.arrive(2, "b")) == []
    both.up(1)
    assert stops(both.done(1)) == [1]
    assert starts(both.gone(1)) == [(2, "b")]


def test_a_rival_of_a_pinned_model_is_refused_at_once() -> None:
    both = bench(a=ModelPolicy(pinned=True, groups=EITHER.groups), b=EITHER)
    both.arrive(1, "a")
    both.up(1)
    both.done(1)
    assert refusals(both.arrive(2, "b")) == [(2, "does_not_fit")]


def test_who_runs_alone_is_not_passed_for_ever() -> None:
    """Others that keep coming may not be loaded any more once it has waited too long."""
    one = bench(solo=ALONE)
    one.planner.sizes = dict.fromkeys(("a", "b", "c", "solo"), 10)
    one.arrive(1, "a")
    one.up(1)
    one.arrive(2, "solo")
    one.wait(29)
    assert starts(one.arrive(3, "b")) == [(3, "b")], "it is loading when solo's turn comes"
    one.wait(2)
    assert starts(one.arrive(4, "c")) == []
    one.up(3)
    one.done(1)
    one.done(3)
    one.gone(1)
    assert starts(one.gone(3)) == [(2, "solo")]


def test_replicas_of_one_model_are_no_rivals() -> None:
    one = bench(a=ModelPolicy(alone=True, replicas_min=2, replicas_max=2))
    assert starts(one.arrive(1, "a")) == [(1, "a"), (2, "a")]


def test_the_rule_for_plans() -> None:
    policies = {"a": EITHER, "b": EITHER, "solo": ALONE}
    there = [Resident(1, "a", {}), Resident(2, "b", {}), Resident(3, "c", {})]

    def of(model: str) -> list[int]:
        found = barred_by(lambda name: policies.get(name, ModelPolicy()), model, there)
        return [resident.engine for resident in found]

    assert (of("a"), of("c"), of("solo")) == ([2], [], [1, 2, 3])


# groups that change


def test_of_two_that_run_together_when_they_become_rivals_one_leaves_after_its_requests() -> None:
    both = bench()
    for request, model in ((1, "a"), (2, "b"), (3, "c")):
        both.arrive(request, model)
        both.up(request)
    both.done(1)
    both.policies = {"a": EITHER, "b": EITHER}
    assert stops(both.tell(PolicyChanged())) == [1], "the idle one; who is in no group is not concerned"
    both.gone(1)
    assert both.scheduler.view("a").state is EngineState.STOPPED, "not brought back without need"
    both.policies = {"b": ALONE}
    assert stops(both.tell(PolicyChanged())) == []
    assert both.scheduler.view("c").engines[0].state is EngineState.READY
    assert both.scheduler.view("b").engines[0].state is EngineState.DRAINING, "both are busy: the newer one stays"
    assert stops(both.done(2)) == [2]


def test_pinned_rivals_stay_and_who_waits_for_the_one_that_left_gets_its_turn() -> None:
    both = bench(a=ModelPolicy(pinned=True))
    for request, model in ((1, "a"), (2, "b")):
        both.arrive(request, model)
        both.up(request)
    both.policies = {"a": ModelPolicy(pinned=True, groups=EITHER.groups), "b": EITHER}
    assert stops(both.tell(PolicyChanged())) == []
    both.policies["a"] = EITHER
    both.tell(PolicyChanged())
    both.arrive(3, "b")
    assert stops(both.done(2)) == [2]
    both.gone(2)
    assert stops(both.done(1)) == [1]
    assert starts(both.gone(1)) == [(3, "b")]


# a launch that changes


def test_an_engine_whose_launch_changed_ends_after_its_requests_and_comes_back() -> None:
    one = bench()
    one.arrive(1, "a")
    one.up(1)
    assert stops(one.tell(LaunchChanged("a"))) == []
    one.arrive(2, "a")
    assert one.scheduler.view("a").engines[0].state is EngineState.DRAINING
    assert stops(one.done(1)) == [1]
    one.gone(1)
    assert grants(one.up(2)) == [(2, 2)]


def test_an_idle_engine_is_replaced_and_a_model_without_one_gets_none() -> None:
    one = bench()
    assert one.tell(LaunchChanged("a")) == []
    one.arrive(1, "a")
    one.up(1)
    one.done(1)
    assert stops(one.tell(LaunchChanged("a"))) == [1]
    assert starts(one.gone(1)) == [(2, "a")]
    one.up(2)
    one.tell(UnloadAsked("a"))
    one.gone(2)
    assert one.tell(LaunchChanged("a")) == []


def test_a_load_under_way_begins_anew() -> None:
    one = bench()
    one.arrive(1, "a")
    commands = one.tell(LaunchChanged("a"))
    assert stops(commands) == [1]
    later = [*starts(commands), *starts(one.gone(1))]
    assert later == [(2, "a")]
    assert grants(one.up(2)) == [(1, 2)]


def test_changed_limits_count_from_then_on() -> None:
    limits = [SchedulerLimits(max_waiting=5), SchedulerLimits(max_waiting=1)]
    one = Bench(room=ROOMY)
    one.scheduler = Scheduler(one.planner, lambda model: ModelPolicy(), limits[0], lambda: limits[1])
    one.arrive(1, "a")
    assert refusals(one.arrive(2, "a")) == []
    one.tell(PolicyChanged())
    assert refusals(one.arrive(3, "a")) == [(3, "queue_full")]
