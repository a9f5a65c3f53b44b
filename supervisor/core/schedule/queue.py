"""Queue requests: who waits, in which order, and who gets a free slot.

Within a model they are served in the order of arrival. Between models that cannot be loaded together, a loaded one may
serve later requests first, which saves swaps; a request that has waited `max_swap_wait` stands before all later ones.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from supervisor.core.schedule.events import Failure, GrantLease, RefuseRequest, RequestArrived
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.state import UNKNOWN_SLOTS, Engine, Model, State, Waiter, smoothed

Rank: TypeAlias = tuple[int, int, float, int, float]

STOPPING_DOWN = Failure("shutting_down", "The daemon is stopping; start it again and repeat the request.")

_MEMORY = 8  # requests over which the share of hits is smoothed
_STRETCH = 60.0  # seconds in which the most requests that are open at a time are counted
_HOMES = 1024  # affinities that are remembered per model
_SOONEST, _LATEST = 1.0, 60.0  # of Retry-After


def arrive(state: State, event: RequestArrived, now: float) -> None:
    """Lend the request an engine, let it wait, or refuse it."""
    if state.closing:
        state.out.append(RefuseRequest(event.request, STOPPING_DOWN))
        return
    model = state.model(event.model)
    if model.looped and not model.serving:
        state.out.append(RefuseRequest(event.request, crash_loop(state, model)))
        return
    _note_hit(state, model, now)
    model.target = max(model.target, state.policy_of(model.id).replicas_min)
    model.waiting[event.request] = Waiter(event.request, now, event.affinity)
    state.queued[event.request] = model
    _note_crowd(state, now)
    lend(state, model, now)
    full = _full(state, model)
    if event.request in model.waiting and full is not None:
        leave(state, model, event.request)
        state.out.append(RefuseRequest(event.request, full))


def _note_hit(state: State, model: Model, now: float) -> None:
    """Note whether the newcomer finds the model at work, or would have if it had been kept for half a load's time."""
    soon = model.idle_since is not None and now < model.idle_since + state.reload_seconds(model) / 2
    hit = soon or any(engine.leases for engine in model.engines)
    state.hit_at = now if hit else state.hit_at
    state.hit_share += (hit - state.hit_share) / _MEMORY


def _note_crowd(state: State, now: float) -> None:
    """Note the largest number of requests open at a time, in this and the last stretch of time."""
    if now >= state.crowd_since + _STRETCH:
        state.crowds = (0, state.crowds[0] if now < state.crowd_since + 2 * _STRETCH else 0)
        state.crowd_since = now
    state.crowds = (max(state.crowds[0], state.open), state.crowds[1])


def leave(state: State, model: Model, request: int) -> None:
    """Drop a request that waits no longer."""
    del state.queued[request]
    del model.waiting[request]


def lend(state: State, model: Model, now: float) -> None:
    """Give what is free to those who wait for the model, the oldest first."""
    while model.waiting:
        waiter = next(iter(model.waiting.values()))
        engine = _choose(state, model, waiter.affinity)
        if engine is None:
            return
        leave(state, model, waiter.request)
        engine.leases[waiter.request] = now
        state.leased[waiter.request] = engine
        _remember(model, waiter.affinity, engine)
        state.out.append(GrantLease(waiter.request, engine.id))


def give_back(state: State, request: int, now: float) -> None:
    """Take a lease back that is over."""
    engine = state.leased.pop(request)
    model = engine.model
    model.busy_seconds = smoothed(model.busy_seconds, now - engine.leases.pop(request))
    if engine.state in {EngineState.READY, EngineState.DRAINING}:
        model.forgive()  # it was of use
    if not engine.leases:
        engine.idle_since = model.idle_since = now
        if engine.state is EngineState.DRAINING:
            state.stop(engine)


def waits_since(model: Model) -> float | None:
    """Return since when somebody wants an engine of the model and has none; None if nobody does."""
    since = [] if model.wanted_since is None else [model.wanted_since]
    if model.waiting:
        since.append(next(iter(model.waiting.values())).arrived)
    return min(since, default=None)


def overdue(state: State, model: Model, now: float) -> bool:
    """Return whether the model has waited so long that later requests may not go first any more."""
    since = waits_since(model)
    return since is not None and now >= since + state.limits.max_swap_wait


def rank(state: State, model: Model, now: float) -> Rank:
    """Return the order of room: the overdue by age.

    Then by priority, what all who wait have waited, their number, age.
    """
    since = waits_since(model)
    age = math.inf if since is None else since
    if overdue(state, model, now):
        return 0, 0, 0.0, 0, age
    began = [waiter.arrived for waiter in model.waiting.values()]
    if model.wanted_since is not None:
        began.append(model.wanted_since)
    waited = len(began) * now - sum(began)
    return 1, -state.policy_of(model.id).priority, -waited, -len(began), age


def goes_before(state: State, model: Model, holder: Model, now: float) -> bool:
    """Return whether the model goes before one whose engine is busy in the room it needs."""
    mine, other = state.policy_of(model.id).priority, state.policy_of(holder.id).priority
    if not overdue(state, model, now) and mine <= other:
        return False
    return not holder.waiting or rank(state, model, now) < rank(state, holder, now)


def crash_loop(state: State, model: Model) -> Failure:
    """Return the failure of a model that keeps failing and is left alone."""
    reason = model.failure or Failure("engine_lost", "unknown")
    if reason.code == "crash_loop":
        return reason
    limits = state.limits
    return Failure(
        "crash_loop",
        f"The engine of '{model.id}' failed {limits.crash_failures} times within {limits.crash_window:g} s and is not "
        f"started again by itself; `supervisor load {model.id}` tries once more. Last reason: {reason.message}",
        reason.log_lines,
    )


def _full(state: State, model: Model) -> Failure | None:
    limits = state.limits
    if len(model.waiting) > limits.max_waiting_model:
        what = f"{limits.max_waiting_model} requests wait for '{model.id}' already"
    elif len(state.queued) > limits.max_waiting:
        what = f"{limits.max_waiting} requests wait already"
    else:
        return None
    slots = sum(capacity(state, engine) for engine in model.engines if engine.state is EngineState.READY)
    load = 0.0 if slots else state.reload_seconds(model)
    retry = retry_seconds(len(model.waiting), slots or UNKNOWN_SLOTS, model.busy_seconds, load)
    return Failure("queue_full", f"{what}, which is the limit; repeat the request later.", retry_after=retry)


def retry_seconds(waiting: int, slots: int, busy_seconds: float | None, load_seconds: float) -> float:
    """Return the whole seconds after which a refused request has a chance: when those that wait have been served.

    Args:
        waiting: requests before it, itself included.
        slots: requests that are served at a time.
        busy_seconds: what one takes, as of late; None: not known.
        load_seconds: what is left of a load that they wait for; 0: the model is loaded.
    """
    expected = load_seconds + waiting * (busy_seconds or _SOONEST) / slots
    return float(math.ceil(min(max(expected, _SOONEST), _LATEST)))


def capacity(state: State, engine: Engine) -> int:
    """Return the number of requests that the engine takes at a time."""
    return state.policy_of(engine.model.id).concurrency or engine.slots or UNKNOWN_SLOTS


def _choose(state: State, model: Model, affinity: str | None) -> Engine | None:
    """Return the engine that served this affinity, else the least busy one; None if no slot is free."""
    share = {
        engine: len(engine.leases) / capacity(state, engine)
        for engine in model.engines
        if engine.state is EngineState.READY
    }
    free = [engine for engine, used in share.items() if used < 1]
    home = model.homes.get(affinity) if affinity is not None else None
    if home is not None and home in free:
        return home
    return min(free, key=lambda engine: (share[engine], engine.id), default=None)


def _remember(model: Model, affinity: str | None, engine: Engine) -> None:
    if affinity is None:
        return
    model.homes[affinity] = engine
    model.homes.move_to_end(affinity)
    if len(model.homes) > _HOMES:
        model.homes.popitem(last=False)
