"""Find room for those who wait for it: ask the planner, say who must leave, and when an engine may start.

Each engine that waits for room is taken in the order of rank, with the newest look at the machine:

 1. it could not even go where only pinned engines live                → refused, with the planner's numbers
 2. it fits beside all that live, once some idle ones have left        → those are stopped; nobody has to: start
 3. it fits once busy ones have left too, and its turn has come        → those drain, the idle among them stop
 4. otherwise                                                          → it waits for the next change

Engines whose models may not be loaded beside this one leave in any case; the planner is asked as if they had.

Room that is being made is a claim: lower ranks are planned beside it. When engines have gone, the machine is looked at
until their memory is free, and everything is asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from supervisor.core.plan import DoesNotFit, Resident
from supervisor.core.schedule import crash, groups
from supervisor.core.schedule.events import CheckRoom, Failure, Plan, StartEngine
from supervisor.core.schedule.idle import linger_end
from supervisor.core.schedule.lifecycle import EngineState, Trigger, step
from supervisor.core.schedule.queue import goes_before, overdue, rank
from supervisor.core.schedule.replicas import one_less
from supervisor.core.schedule.state import Engine, Model, State
from supervisor.errors import SupervisorError

_FRONT = 8  # so many that wait are planned for at every change; those behind them once, whether they could ever fit


def place_waiting(state: State, now: float) -> bool:
    """Try to place everybody who waits for room.

    Return whether a leaving engine serves again, so that others profit.
    """
    pending = [engine for engine in state.engines.values() if engine.pending]
    pending.sort(key=lambda engine: (engine.extra, rank(state, engine.model, now), engine.id))
    ahead: list[Engine] = []
    waiting = 0
    for engine in pending:
        front = waiting < _FRONT
        if not front:
            engine.plan, engine.victims = None, frozenset()
        if engine.looking is None:
            if not engine.looked or (state.vacated and front):
                _look(state, engine)
            elif front or not engine.verdicts:
                _seek(state, engine, ahead, now)
        waiting += engine.pending
        if engine.pending and (engine.plan is not None or overdue(state, engine.model, now)):
            ahead.append(engine)
    return _call_back(state, ahead)


def seen(state: State, engine: Engine, failure: Failure | None, now: float) -> None:
    """Take in the outcome of a look at the machine."""
    for gone in engine.looking or ():
        state.vacated.pop(gone, None)
    engine.looking = None
    engine.looked = True
    state.looked_at = now
    state.facts += 1
    if failure is not None:
        crash.give_up(state, engine, failure, now)


def residents(state: State, now: float) -> tuple[Resident, ...]:
    """Return the engines on the machine. One is evictable if it is idle, not pinned, and not kept for its clients."""
    return tuple(
        _resident(state, engine, now, evictable=_may_go(state, engine, now))
        for engine in state.engines.values()
        if engine.ordered is not None
    )


def _look(state: State, engine: Engine) -> None:
    engine.looking = frozenset(state.vacated)
    needed: Counter[str] = Counter()
    for held in state.vacated.values():
        needed.update(held)
    state.out.append(CheckRoom(engine.id, engine.model.id, dict(needed)))


def _seek(state: State, engine: Engine, ahead: Sequence[Engine], now: float) -> None:
    """Decide for one engine. `ahead`: those of higher rank that claim room or have waited too long."""
    engine.plan, engine.victims = None, frozenset()
    try:
        refusal, plan, victims = _ask(state, engine, ahead, now)
    except SupervisorError as error:
        refusal, plan, victims = Failure(error.code, error.message, error.log_lines), None, []
    if refusal is not None:
        crash.give_up(state, engine, refusal, now)
        return
    if plan is None or not all(_must_go(state, victim, engine.model, now) for victim in victims):
        return
    if victims and engine.extra:
        return
    engine.plan, engine.victims = plan, frozenset(victim.id for victim in victims)
    if now > state.looked_at + state.limits.look_age:
        _look(state, engine)
    elif any(victim.state is not EngineState.STOPPING for victim in victims):
        _evict(state, engine, victims, now)
    elif not victims:
        engine.ordered, engine.used_bytes = now, plan.used_bytes
        engine.verdicts.clear()
        state.facts += 1
        state.starts += 1
        state.out.append(StartEngine(engine.id, engine.model.id, plan))


def _ask(
    state: State, engine: Engine, ahead: Sequence[Engine], now: float
) -> tuple[Failure | None, Plan | None, list[Engine]]:
    """Return a reason to refuse it, or the best plan and the engines that leave for it.

    Without a plan it has to wait.
    """
    living = [other for other in state.engines.values() if other.ordered is not None]
    pinned = [other for other in living if state.policy_of(other.model.id).pinned and not other.leaving]
    barred = [other for other in living if groups.excludes(state, engine.model, other.model)]
    never = next((other for other in barred if other in pinned), None)
    if never is not None:
        return groups.refusal(engine.model.id, never.model.id), None, []
    if any(groups.excludes(state, engine.model, other.model) for other in ahead):
        return None, None, []
    claims = [other for other in ahead if other.plan is not None]
    beside = [other for other in living if other not in barred]
    ever = _verdict(state, engine, "ever", [_resident(state, other, now, evictable=False) for other in pinned], ())
    if isinstance(ever, DoesNotFit):
        return Failure("does_not_fit", " ".join((ever.message, *ever.hints))), None, []
    if all(other.leaving or _may_go(state, other, now) for other in barred):
        there = [_resident(state, other, now, evictable=_may_go(state, other, now)) for other in beside]
        present = _verdict(state, engine, "present", there, claims)
        if not isinstance(present, DoesNotFit):
            return None, present, [*barred, *_named(state, present)]
    leaving = [
        other for other in beside if other.state is EngineState.STOPPING or (other.leaving and not other.for_room)
    ]
    staying = [other for other in beside if other not in leaving]
    later = _verdict(
        state,
        engine,
        "later",
        [_resident(state, other, now, evictable=other not in pinned) for other in staying],
        claims,
    )
    if not isinstance(later, DoesNotFit):
        return None, later, [*barred, *leaving, *_named(state, later)]
    if not claims:  # the planner saw no way for these residents, but there is one without any of them
        return None, ever, [other for other in living if other not in pinned]
    return None, None, []


def _verdict(
    state: State, engine: Engine, name: str, beside: Sequence[Resident], claims: Sequence[Engine]
) -> Plan | DoesNotFit:
    """Return the planner's answer, remembered as long as nothing that it depends on has changed."""
    plans = [claim.plan for claim in claims]
    key = (state.facts, [(resident.engine, resident.evictable) for resident in beside], plans)
    known = engine.verdicts.get(name)
    if known is not None and known[0] == key:
        return known[1]
    claimed = [
        Resident(claim.id, claim.model.id, claim.plan.used_bytes, priority=state.policy_of(claim.model.id).priority)
        for claim in claims
        if claim.plan is not None
    ]
    answer = state.planner(engine.model.id, (*beside, *claimed))
    engine.verdicts[name] = key, answer
    return answer


def _named(state: State, plan: Plan) -> list[Engine]:
    return [state.engines[number] for number in plan.evict]


def _may_go(state: State, engine: Engine, now: float) -> bool:
    """Return whether an engine is idle, not expected to be used in a moment, and can leave at once."""
    return engine.idle and not state.policy_of(engine.model.id).pinned and now >= linger_end(state, engine)


def _must_go(state: State, victim: Engine, claimant: Model, now: float) -> bool:
    """Return whether an engine has to make room for the claimant now, or does so already."""
    if victim.leaving or _may_go(state, victim, now):
        return True
    return victim.state is EngineState.READY and goes_before(state, claimant, victim.model, now)


def _evict(state: State, engine: Engine, victims: Sequence[Engine], now: float) -> None:
    """Let the victims go, unless that was done too often in vain.

    Room in which another engine was started was not made in vain: whoever waits gets his turn by `max_swap_wait`.
    """
    found = frozenset(victim.id for victim in victims if victim.state is EngineState.READY)
    if found:
        if engine.rounds_at != state.starts:
            engine.rounds = 0
        elif engine.made and engine.made.isdisjoint(state.engines):
            engine.rounds += 1
        engine.made, engine.rounds_at = found, state.starts
    if engine.rounds >= state.limits.room_rounds:
        message = (
            f"Room for '{engine.model.id}' was made {state.limits.room_rounds} times and taken by others each time. "
            "Close other programs that use the devices, or repeat the request."
        )
        crash.give_up(state, engine, Failure("does_not_fit", message), now)
        return
    for victim in victims:
        if victim.state is EngineState.READY:
            state.drain(victim, for_room=True)
            one_less(victim.model)


def _call_back(state: State, claims: Sequence[Engine]) -> bool:
    """Let engines serve again whose room nobody needs any more; return whether there was one."""
    needed = frozenset[int]().union(*(claim.victims for claim in claims))
    found = [
        engine
        for engine in state.engines.values()
        if engine.state is EngineState.DRAINING and engine.for_room and engine.id not in needed
    ]
    for engine in found:
        engine.state = step(engine.state, Trigger.RESUME)
        engine.for_room = False
    return bool(found)


def _resident(state: State, engine: Engine, now: float, *, evictable: bool) -> Resident:
    """Return an engine in the planner's form; one that leaves anyway is the first to choose."""
    model = engine.model
    return Resident(
        engine.id,
        model.id,
        engine.used_bytes,
        evictable=evictable,
        reload_seconds=0.0 if engine.leaving else state.reload_seconds(model),
        idle_seconds=now - engine.idle_since if engine.idle else 0.0,
        priority=state.policy_of(model.id).priority,
    )
