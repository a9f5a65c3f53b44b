"""What is carried to the next image of the daemon, and who lends slots meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.footprint import DeviceFootprint, Footprint
from supervisor.core.plan import Seat
from supervisor.core.schedule import Scheduler, SchedulerLimits
from supervisor.core.schedule.events import (
    EngineAdopted,
    EngineGone,
    Failure,
    GrantLease,
    LoadAsked,
    RefuseRequest,
    RequestArrived,
    RequestDone,
    StopEngine,
    TimePassed,
)
from supervisor.core.takeover.carried import (
    Carried,
    CarriedCopy,
    CarriedEngine,
    CarriedListener,
    CarriedPins,
    HeldProcess,
    NotCarried,
    decode,
    encode,
)
from supervisor.core.takeover.lending import Lending, LentEngine
from tests.core.schedule.toy import ToyPlanner
from tests.support.placements import placement

HELD = HeldProcess(4711, 1767225600.25, "/state/4711.json", (10, 11, 12), (b"half a li\xff", b""))
FOOTPRINT = Footprint((DeviceFootprint("CUDA0", weights_bytes=7), DeviceFootprint("CPU", kv_bytes=3)), n_ctx=4096)


def engine(number: int = 3, model: str = "a") -> CarriedEngine:
    return CarriedEngine(
        number=number,
        model=model,
        process=HELD,
        address="/run/a.sock",
        argv=("llama-server", "-m", "a.gguf"),
        placement=replace(placement(("CUDA0",), tensor_split=(4,)), model=model),
        seat=None,
        slots=2,
        n_ctx=4096,
        n_slots=2,
        info={"meta": {"n": [1, 2.5, None]}},
        footprint=FOOTPRINT,
        asked_at=1.0,
        ready_at=2.0,
        idle_since=3.0,
    )


def whole() -> Carried:
    command = replace(engine(4, "b"), address=("127.0.0.1", 8080), placement=None, seat=Seat("b", {"CPU": 5}))
    return Carried(
        program="1.2.3",
        lock=5,
        listeners=(CarriedListener("127.0.0.1", 0, 6), CarriedListener("::1", 80, 7, passed=True)),
        secret="s",
        engines=(engine(), command),
        copies=(CarriedCopy(99, 8, ((1, 3),), ((2, "a", None),)),),
        schedule=scheduled().carried(),
        pins=CarriedPins({"a": True}, {"b": None}),
    )


def scheduled() -> Scheduler:
    """A scheduler that has seen a model fail."""
    scheduler = Scheduler(ToyPlanner({"GPU0": 10}, {"a": 4, "b": 4}))
    scheduler.handle(LoadAsked("a"), 1.0)
    return scheduler


def test_all_comes_back_as_it_was() -> None:
    assert decode(encode(whole())) == whole()


def test_an_engine_that_another_version_wrote_is_lost_alone() -> None:
    told = json.loads(encode(whole()))
    del told["engines"][0]["slots"]
    found = decode(json.dumps(told).encode())
    assert [one.model for one in found.engines] == ["b"]
    ((process, model, reason),) = found.lost
    assert (process.pid, process.pipes, model) == (HELD.pid, HELD.pipes, "a")
    assert "slots" in reason


def test_an_engine_without_a_place_is_lost() -> None:
    found = decode(encode(replace(whole(), engines=(replace(engine(), placement=None),))))
    assert not found.engines
    assert found.lost[0][1] == "a"


def test_of_another_format_only_what_holds_in_all_is_read() -> None:
    told = json.loads(encode(whole()))
    told["format"] += 1
    told["schedule"] = "quite another thing"
    found = decode(json.dumps(told).encode())
    assert (found.lock, found.listeners, found.secret, found.copies) == (5, whole().listeners, "s", whole().copies)
    assert not found.engines
    assert [model for _, model, _ in found.lost] == ["a", "b"]
    assert not found.schedule.models


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": "x"}', b"\xff"])
def test_what_is_none_of_it_is_refused(text: bytes) -> None:
    with pytest.raises(NotCarried):
        decode(text)


# ── the scheduler ────────────────────────────────────────────────────────────────────────────────────────────────


def adopted(engine: int = 7, leases: tuple[int, ...] = (), *, leaving: bool = False) -> EngineAdopted:
    return EngineAdopted(engine, "a", Seat("a", {"GPU0": 4}), 2, 5.0, 6.0, leases, leaving=leaving)


def test_an_adopted_engine_has_its_leases() -> None:
    scheduler = scheduled_after(scheduled())
    assert scheduler.handle(adopted(leases=(1, 2)), 10.0) == []
    view = scheduler.view("a")
    assert (view.leases, view.engines[0].engine, view.engines[0].slots) == (2, 7, 2)
    assert scheduler.handle(RequestArrived(3, "a"), 11.0) == [], "both slots are taken"
    assert scheduler.handle(RequestDone(1), 12.0) == [GrantLease(3, 7)]
    assert scheduler.residents(12.0)[0].used_bytes == {"GPU0": 4}


def test_one_that_was_to_leave_leaves_after_its_requests() -> None:
    scheduler = scheduled_after(scheduled())
    assert scheduler.handle(adopted(leases=(1,), leaving=True), 10.0) == []
    assert scheduler.handle(RequestDone(1), 12.0) == [StopEngine(7, idle=True)]


def test_one_that_was_to_leave_and_has_none_leaves_at_once() -> None:
    scheduler = scheduled_after(scheduled())
    assert scheduler.handle(adopted(leaving=True), 10.0) == [StopEngine(7, idle=True)]


def test_numbers_of_engines_are_not_given_twice() -> None:
    scheduler = scheduled_after(scheduled())
    scheduler.handle(adopted(), 10.0)
    scheduler.handle(LoadAsked("b"), 10.0)
    assert {one.engine for one in scheduler.view("b").engines} == {8}


def test_a_crash_loop_stays_one() -> None:
    limits = SchedulerLimits(crash_failures=2)
    before = Scheduler(ToyPlanner({"GPU0": 10}, {"a": 4}), limits=limits)
    before.handle(adopted(engine=1), 0.0)
    for number in (1, 2):
        before.handle(EngineGone(number, Failure("engine_lost", "it ended")), float(number))
        before.handle(adopted(engine=number + 1), float(number))
    before.handle(EngineGone(3, Failure("engine_lost", "it ended")), 3.0)
    assert before.view("a").failure is not None
    after = scheduled_after(before, limits)
    assert after.view("a").failure == before.view("a").failure
    (refused,) = after.handle(RequestArrived(9, "a"), 4.0)
    assert isinstance(refused, RefuseRequest)
    assert refused.failure.code == "crash_loop"
    assert after.handle(TimePassed(), 5.0) == []


def test_what_was_asked_for_is_wanted_still() -> None:
    assert [(one.id, one.wanted) for one in scheduled().carried().models] == [("a", True)]


def scheduled_after(before: Scheduler, limits: SchedulerLimits | None = None) -> Scheduler:
    found = Scheduler(ToyPlanner({"GPU0": 10}, {"a": 4, "b": 4}), limits=limits)
    found.restore(before.carried())
    return found


# ── slots that are lent meanwhile ────────────────────────────────────────────────────────────────────────────────


def test_slots_are_lent_in_turn() -> None:
    lending = Lending([LentEngine(1, "a", 1, {1})], [(2, "a", None)])
    assert lending.handle(RequestArrived(3, "a"), 0.0) == []
    assert lending.handle(RequestDone(1), 0.0) == [GrantLease(2, 1)]
    assert (lending.leases, lending.waiting) == (((2, 1),), ((3, "a", None),))
    assert lending.handle(RequestDone(3), 0.0) == [], "it has left"
    assert lending.handle(RequestDone(2), 0.0) == []
    assert not lending.leases
    assert not lending.waiting


def test_an_engine_that_leaves_lends_no_more() -> None:
    lending = Lending([LentEngine(1, "a", 2, {1}, open=False)])
    assert lending.handle(RequestArrived(3, "a"), 0.0) == []
    assert lending.handle(RequestDone(1), 0.0) == []
    assert lending.waiting == ((3, "a", None),)


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.sampled_from("ab")), max_size=60))
def test_no_slot_is_lent_twice_and_none_lies_idle_while_somebody_waits(steps: list[tuple[bool, int, str]]) -> None:
    engines = [LentEngine(1, "a", 2), LentEngine(2, "a", 1), LentEngine(3, "b", 2)]
    lending, open_, order = Lending(engines), {}, []
    for number, (comes, which, model) in enumerate(steps):
        if comes:
            open_[number] = model
            told = lending.handle(RequestArrived(number, model), 0.0)
        elif open_:
            gone = sorted(open_)[which % len(open_)]
            del open_[gone]
            told = lending.handle(RequestDone(gone), 0.0)
        else:
            continue
        order += [one.request for one in told if isinstance(one, GrantLease)]
        assert {request for request, _ in lending.leases} | {one[0] for one in lending.waiting} == set(open_)
        assert all(one.free >= 0 for one in engines)
        for wanted in "ab":
            waits = any(one[1] == wanted for one in lending.waiting)
            assert not (waits and any(one.free for one in engines if one.model == wanted))
    assert len(order) == len(set(order))
