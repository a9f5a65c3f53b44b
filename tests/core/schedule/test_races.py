"""Races that schedulers of this kind have been seen to lose, each by the order of events that does it."""

from __future__ import annotations

from supervisor.core.schedule import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.events import (
    CheckRoom,
    EngineBecameReady,
    EngineGone,
    EngineHung,
    EngineSpawned,
    Event,
    Failure,
    LaunchChanged,
    LoadAsked,
    PolicyChanged,
    RequestArrived,
    RoomSeen,
    TimePassed,
    UnloadAsked,
)
from supervisor.core.schedule.lifecycle import EngineState
from tests.core.schedule.toy import BROKEN, CRASH, Bench, grants, refusals, starts, stops


def test_two_models_asked_for_at_once_with_room_for_one_are_both_served() -> None:
    """Neither waits for a room that the other has reserved and does not use."""
    bench = Bench()
    bench.tell(LoadAsked("a"))
    bench.up(1)
    assert stops([*bench.arrive(1, "b"), *bench.arrive(2, "c")]) == [1]
    assert starts(bench.gone(1)) == [(2, "b")]
    bench.up(2)
    assert stops(bench.done(1)) == [2]
    assert starts(bench.gone(2)) == [(3, "c")]
    assert grants(bench.up(3)) == [(2, 3)]


def test_two_models_whose_looks_overlap_do_not_both_get_the_one_room() -> None:
    bench = Bench()
    bench.looking = False
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    assert starts(bench.tell(RoomSeen(2))) == [(2, "b")]
    assert starts(bench.tell(RoomSeen(1))) == []
    bench.up(2)
    assert stops(bench.done(2)) == [2]


def test_an_engine_is_not_evicted_between_ready_and_use() -> None:
    """The one that becomes ready has its leases in the same breath, whoever waits for its room."""
    bench = Bench(b=ModelPolicy(priority=9), limits=SchedulerLimits(max_swap_wait=1))
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    bench.wait(50)
    bench.tell(TimePassed(), EngineSpawned(1))
    commands = bench.tell(EngineBecameReady(1, 1))
    assert (grants(commands), stops(commands)) == ([(1, 1)], [])


def test_a_load_and_an_unload_at_once_deadlock_nothing() -> None:
    """Unload while one request loads the model and another waits for its room; both models go on living."""
    bench = Bench()
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    bench.tell(EngineSpawned(1))
    commands = bench.tell(UnloadAsked("a"))
    assert (refusals(commands), stops(commands)) == ([(1, "load_cancelled")], [1])
    assert bench.tell(EngineBecameReady(1, 1)) == [], "ready too late"
    assert starts(bench.gone(1)) == [(2, "b")]
    assert bench.arrive(3, "a") == []
    bench.up(2)
    assert stops(bench.done(2)) == [2]
    assert starts(bench.gone(2)) == [(3, "a")]


def test_alternating_requests_do_not_swap_for_each_one() -> None:
    """A B A B with room for one: the swaps are two, not four."""
    bench = Bench()
    commands = []
    for request, model in enumerate("ababab", 1):
        commands += bench.arrive(request, model)
    commands += bench.up(1)
    for request in (1, 3, 5):
        commands += bench.done(request)
    commands += bench.gone(1)
    commands += bench.up(2)
    for request in (2, 4, 6):
        commands += bench.done(request)
    assert [model for _, model in starts(commands)] == ["a", "b"]
    assert [request for request, _ in grants(commands)] == [1, 3, 5, 2, 4, 6]


def test_an_eviction_that_was_ordered_is_not_undone_by_a_request_for_the_victim() -> None:
    """The victim is not brought back to life: the request waits for a fresh engine, and both models get their turn."""
    bench = Bench()
    bench.tell(LoadAsked("a"))
    bench.up(1)
    assert stops(bench.arrive(1, "b")) == [1]
    assert bench.arrive(2, "a") == []
    assert starts(bench.gone(1)) == [(2, "b")]
    bench.up(2)
    assert stops(bench.done(1)) == [2]
    assert starts(bench.gone(2)) == [(3, "a")]
    assert grants(bench.up(3)) == [(2, 3)]


def test_a_model_that_never_fits_is_refused_each_time_and_never_tried() -> None:
    bench = Bench(sizes={"a": 10, "huge": 11})
    bench.tell(LoadAsked("a"))
    bench.up(1)
    for request in range(1, 6):
        commands = bench.arrive(request, "huge")
        assert refusals(commands) == [(request, "does_not_fit")]
        assert not starts(commands)
        assert not stops(commands)
    assert bench.scheduler.next_wake is None


def test_memory_that_is_not_yet_free_is_not_given_away() -> None:
    """The process is reaped, the driver still counts its memory: the start waits for a look that shows it free."""
    bench = Bench()
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.tell(UnloadAsked("a"))
    bench.gone(1)
    bench.looking = False
    assert bench.arrive(1, "b") == [CheckRoom(2, "b", {"GPU0": 10})]
    bench.planner.room["GPU0"] = 0  # what a look would show now
    assert bench.tell(EngineGone(99), TimePassed()) == []
    bench.planner.room["GPU0"] = 10
    assert starts(bench.tell(RoomSeen(2))) == [(2, "b")]


def test_an_engine_that_ends_while_room_is_waited_for_is_looked_at_again() -> None:
    """Between the look and the decision another one went: its memory is waited for, too."""
    bench = Bench(sizes={"a": 5, "b": 5, "c": 10})
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.tell(LoadAsked("b"))
    bench.up(2)
    assert stops(bench.arrive(1, "c")) == [1, 2]
    bench.looking = False
    assert bench.gone(1) == [CheckRoom(3, "c", {"GPU0": 5})]
    assert bench.gone(2) == [], "one look at a time"
    assert bench.tell(RoomSeen(3)) == [CheckRoom(3, "c", {"GPU0": 5})]
    assert starts(bench.tell(RoomSeen(3))) == [(3, "c")]


def test_a_busy_engine_is_never_stopped_for_another() -> None:
    bench = Bench(b=ModelPolicy(priority=9), limits=SchedulerLimits(max_swap_wait=1))
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "b")
    for _ in range(5):
        bench.wait(1000)
        assert stops(bench.tell(TimePassed())) == []
    assert stops(bench.done(1)) == [1]


def test_a_model_is_not_loaded_twice_by_a_load_and_requests_together() -> None:
    bench = Bench(sizes={"a": 2})
    commands = bench.tell(LoadAsked("a"), RequestArrived(1, "a"), LoadAsked("a"), RequestArrived(2, "a"))
    assert starts(commands) == [(1, "a")]
    assert bench.tell(LoadAsked("a")) == []


def test_looking_at_a_model_neither_wakes_nor_keeps_it() -> None:
    bench = Bench(a=ModelPolicy(ttl=10))
    for _ in range(3):
        assert bench.scheduler.view("a").state is None
        bench.scheduler.residents(bench.now)
    bench.tell(LoadAsked("a"))
    bench.up(1)
    for _ in range(10):
        bench.wait(1)
        bench.scheduler.view("a")
    assert stops(bench.tell(TimePassed())) == [1]


def test_a_dead_engine_is_not_granted() -> None:
    bench = Bench()
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.gone(1, CRASH)
    assert grants(bench.arrive(1, "a")) == []


def test_the_news_of_a_hang_and_of_the_death_may_come_in_any_order() -> None:
    orders: list[list[Event]] = [
        [EngineHung(1, BROKEN), EngineGone(1)],
        [EngineGone(1, CRASH), EngineHung(1, BROKEN)],
    ]
    for events in orders:
        bench = Bench()
        bench.arrive(1, "a")
        bench.up(1)
        bench.arrive(2, "a")
        commands = bench.tell(*events)
        assert starts(commands) == [(2, "a")]
        assert grants(bench.up(2)) == [(2, 2)]


def test_a_request_that_leaves_at_the_moment_of_its_lease_gives_it_back() -> None:
    bench = Bench()
    bench.arrive(1, "a")
    assert grants(bench.up(1)) == [(1, 1)]
    bench.done(1)
    bench.done(1)
    assert bench.scheduler.view("a").leases == 0
    assert grants(bench.arrive(2, "a")) == [(2, 1)]


def test_a_failed_look_does_not_leave_the_next_in_the_queue_behind() -> None:
    bench = Bench()
    bench.looking = False
    bench.arrive(1, "a")
    bench.arrive(2, "b")
    bench.tell(RoomSeen(2))
    assert refusals(bench.tell(RoomSeen(1, Failure("gguf_invalid", "cut off")))) == [(1, "gguf_invalid")]
    bench.up(2)
    assert bench.scheduler.view("b").state is EngineState.READY


def test_a_waiter_that_leaves_while_its_victim_ends_leaves_the_victim_s_model_loadable() -> None:
    """The room is made for nobody any more: the next request for either model gets it."""
    for model in "ab":
        bench = Bench()
        bench.tell(LoadAsked("a"))
        bench.up(1)
        assert stops(bench.arrive(1, "b")) == [1]
        bench.done(1)
        late = bench.arrive(2, model)
        ((engine, started),) = starts([*late, *bench.gone(1)])
        assert started == model
        assert grants(bench.up(engine)) == [(2, engine)]


def test_an_eviction_that_does_not_end_holds_up_nobody_else() -> None:
    """Its victim does not die: loaded models answer all the same, and what fits elsewhere is loaded."""
    bench = Bench(sizes={"a": 10, "b": 10, "c": 4, "d": 4}, room={"GPU0": 10, "GPU1": 8})
    bench.tell(LoadAsked("a"))
    bench.up(1)
    bench.tell(LoadAsked("c"))
    bench.up(2)
    assert stops(bench.arrive(1, "b")) == [1]
    assert grants(bench.arrive(2, "c")) == [(2, 2)]
    assert starts(bench.arrive(3, "d")) == [(4, "d")]
    assert grants(bench.up(4)) == [(3, 4)]
    bench.done(1)
    assert grants(bench.arrive(4, "c")) == []
    bench.done(2)
    assert bench.scheduler.view("c").leases == 1


def test_a_loaded_model_is_neither_planned_nor_loaded_again_by_its_requests() -> None:
    """Its own memory, which now shows as taken, is no reason to do anything."""
    bench = Bench()
    bench.slots = 4
    bench.arrive(1, "a")
    bench.up(1)
    bench.planner.room["GPU0"] = 0
    asked = len(bench.planner.asked)
    for request in range(2, 12):
        assert grants(bench.arrive(request, "a")) == [(request, 1)]
        assert bench.done(request) == []
    assert len(bench.planner.asked) == asked


def test_a_request_at_the_moment_an_idle_time_ends_is_served() -> None:
    """By the engine that is there, or by a fresh one; never by the one that ends."""
    for late in (0.0, 0.1):
        bench = Bench(a=ModelPolicy(ttl=10))
        bench.arrive(1, "a")
        bench.up(1)
        bench.done(1)
        bench.wait(9.95 + late)
        commands = bench.arrive(2, "a")
        if late:
            assert (stops(commands), grants(commands)) == ([1], [])
            commands = bench.gone(1)
            assert starts(commands) == [(2, "a")]
            assert grants(bench.up(2)) == [(2, 2)]
        else:
            assert (stops(commands), grants(commands)) == ([], [(2, 1)])
            bench.wait(1)
            assert stops(bench.tell(TimePassed())) == []


def test_a_child_that_is_killed_while_it_loads_leaves_nothing_stuck() -> None:
    """Neither the model itself nor who waits for its room."""
    bench = Bench()
    bench.arrive(1, "a")
    bench.tell(EngineSpawned(1))
    bench.arrive(2, "b")
    commands = bench.gone(1, CRASH)
    assert refusals(commands) == [(1, "engine_lost")]
    assert starts(commands) == [(2, "b")]
    bench.arrive(3, "a")
    bench.up(2)
    assert stops(bench.done(2)) == [2]
    assert starts(bench.gone(2)) == [(3, "a")]


def test_a_preload_that_a_reload_repeats_loads_once() -> None:
    bench = Bench(a=ModelPolicy(preload=True, pinned=True))
    commands = bench.tell(LoadAsked("a"), PolicyChanged(), LoadAsked("a"))
    commands += bench.tell(EngineSpawned(1), PolicyChanged(), LoadAsked("a"))
    commands += bench.tell(EngineBecameReady(1, 1), PolicyChanged(), LoadAsked("a"))
    assert (starts(commands), stops(commands)) == ([(1, "a")], [])


def test_a_busy_model_whose_launch_changes_under_steady_requests_is_replaced() -> None:
    """There is always a request at work or waiting: the old engine ends all the same, and nobody is refused."""
    bench = Bench()
    bench.slots = 2
    bench.arrive(1, "a")
    bench.up(1)
    bench.arrive(2, "a")
    commands = bench.tell(LaunchChanged("a"))
    commands += bench.arrive(3, "a")
    commands += bench.done(1)
    commands += bench.arrive(4, "a")
    assert (grants(commands), stops(commands), refusals(commands)) == ([], [], [])
    assert stops(bench.done(2)) == [1]
    bench.gone(1)
    assert grants(bench.up(2)) == [(3, 2), (4, 2)]


def test_a_crowd_that_waits_costs_the_planner_little_and_everybody_gets_a_turn() -> None:
    models = [f"m{number}" for number in range(60)]
    bench = Bench(sizes={**dict.fromkeys(models, 10), "huge": 11})
    served: list[int] = []
    for request, model in enumerate(models):
        before = len(bench.planner.asked)
        bench.arrive(request, model)
        assert len(bench.planner.asked) <= before + 30
    assert refusals(bench.arrive(99, "huge")) == [(99, "does_not_fit")], "at once, though many wait"
    engine = 1
    while len(served) < len(models):
        before = len(bench.planner.asked)
        ((request, _),) = grants(bench.up(engine))
        served.append(request)
        assert stops(bench.done(request)) == ([engine] if len(served) < len(models) else [])
        engine = next((number for number, _ in starts(bench.gone(engine))), engine)
        assert len(bench.planner.asked) <= before + 200
    assert served == sorted(served)
