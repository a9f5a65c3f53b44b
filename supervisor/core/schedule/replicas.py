"""Adjust the number of a model's engines: none without demand, `replicas_min` on demand, more while requests wait.

The first one may make others leave; those beside it are extras that take free room only.
"""

from __future__ import annotations

from supervisor.core.schedule.lifecycle import STARTING, EngineState, Trigger, step
from supervisor.core.schedule.state import Model, State


def adjust(state: State, now: float) -> None:
    """Reserve engines that are missing, and call off those that nobody wants any more."""
    if state.closing:
        return
    for model in state.models.values():
        if model.in_demand:
            _add(state, model, now)
        elif model.engines:
            _call_off(state, model)
            _add(state, model, now)
        else:
            model.target = 0
            if model.last is EngineState.BACKOFF:
                model.last = step(model.last, Trigger.CANCEL)


def one_less(model: Model) -> None:
    """Lower the target when an engine leaves for good reason: it is replaced only on new demand."""
    model.target = min(model.target, len(model.serving))


def _add(state: State, model: Model, now: float) -> None:
    policy = state.policy_of(model.id)
    serving = model.serving
    if model.waiting and serving and all(engine.state is EngineState.READY for engine in serving):
        model.target = max(model.target, len(serving) + 1)  # all that was free is lent, and some still wait
    wanted = min(max(model.target, 1), policy.replicas_max) if model.in_demand or serving else 0
    missing = min(wanted - len(serving), policy.replicas_max - len(model.engines))
    if model.looped:
        return
    if missing > 0 and now < model.retry_at:
        if model.last is EngineState.FAILED and not model.engines:
            model.last = step(model.last, Trigger.BACK_OFF)
        return
    for _ in range(missing if not serving or now >= model.grow_at else 0):
        state.reserve(model)


def _call_off(state: State, model: Model) -> None:
    """End loads that nobody waits for; one beside a ready engine goes on if it has begun or is within the minimum."""
    ready = any(engine.state is EngineState.READY for engine in model.engines)
    least = state.policy_of(model.id).replicas_min
    for engine in [engine for engine in model.engines if engine.state in STARTING]:
        if not ready or (engine.pending and len(model.serving) > least):
            state.stop(engine)
            one_less(model)
    model.target = min(model.target, max(least, len(model.serving)))
