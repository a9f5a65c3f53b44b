"""Handle engines that end without being told to: who is told, and whether and when another one is started."""

from __future__ import annotations

from supervisor.core.schedule.events import EngineGone, Failure
from supervisor.core.schedule.lifecycle import STARTING, EngineState, Trigger, restart_delay, step
from supervisor.core.schedule.queue import crash_loop
from supervisor.core.schedule.state import Engine, Model, State

_NO_REASON = Failure("engine_lost", "The engine ended without a reason.")


def gone(state: State, engine: Engine, event: EngineGone, now: float) -> None:
    """Take note that the engine's process is no more."""
    before = engine.state
    told = engine.leaving and engine.end is None
    engine.state = step(before, Trigger.LOST if engine.end is not None else Trigger.EXITED)
    state.remove(engine)
    if told:
        return
    model = engine.model
    model.fail(engine.end or event.failure or _NO_REASON, now)
    if event.again and before is EngineState.LOADING:
        if not model.serving and not model.in_demand and state.policy_of(model.id).keep and not state.closing:
            model.wanted_since = now
        return
    if before is not EngineState.RESERVED:
        _count(state, model, now)
    _go_on(state, model, loading=before in STARTING, again=before is not EngineState.RESERVED, now=now)


def give_up(state: State, engine: Engine, failure: Failure, now: float) -> None:
    """Give up an engine that waits for its room and will not get it."""
    engine.state = step(engine.state, Trigger.EXITED)
    state.remove(engine)
    engine.model.fail(failure, now)
    engine.model.grow_at = now + state.limits.look_age
    _go_on(state, engine.model, loading=True, again=False, now=now)


def _count(state: State, model: Model, now: float) -> None:
    limits = state.limits
    model.failures.append(now)
    while model.failures[0] < now - limits.crash_window:
        model.failures.popleft()
    model.looped = len(model.failures) >= limits.crash_failures
    model.retry_at = now + restart_delay(len(model.failures), limits.backoff_base, limits.backoff_max)


def _go_on(state: State, model: Model, *, loading: bool, again: bool, now: float) -> None:
    """Refuse those who waited for this load, or for a model that only fails; bring back models that are to be kept."""
    failure = model.failure or _NO_REASON
    if model.serving:
        model.target = len(model.serving) if loading else model.target
        return
    model.wanted_since = None
    if model.looped:
        looped = crash_loop(state, model)
        model.fail(looped, now)
        state.refuse_waiting(model, looped)
    elif loading:
        state.refuse_waiting(model, failure)
    if again and not model.looped and state.policy_of(model.id).keep and not state.closing:
        model.wanted_since = now
