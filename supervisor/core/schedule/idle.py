"""What time alone does: idle engines that end, and how long one is kept for clients that come back quickly."""

from __future__ import annotations

from supervisor.core.lifecycle import EngineState
from supervisor.core.schedule.queue import waits_since
from supervisor.core.schedule.replicas import one_less
from supervisor.core.schedule.state import Engine, State


def expire(state: State, now: float) -> None:
    """End what was idle for its model's `ttl`, and everything once a stopping daemon has waited long enough."""
    for engine in list(state.engines.values()):
        end = _expiry(state, engine)
        if end is not None and now >= end:
            state.stop(engine)
            one_less(engine.model)
    if state.close_at is not None and now >= state.close_at:
        for engine in list(state.engines.values()):
            state.let_go(engine, now=True)


def linger_end(state: State, engine: Engine) -> float:
    """How long an idle engine is kept from those who are not in a hurry.

    Twice the usual pause of its clients, where that is less than loading it again takes.
    """
    gap = engine.model.gap_seconds
    if gap is None or 2 * gap >= engine.model.reload_seconds or engine.model.idle_since is None:
        return engine.idle_since
    return engine.idle_since + min(2 * gap, state.limits.max_linger)


def next_wake(state: State, now: float) -> float | None:
    """When time alone will change something; None: never."""
    times = [state.close_at]
    times += [_expiry(state, engine) for engine in state.engines.values()]
    seeking = False
    for model in state.models.values():
        if model.in_demand or model.engines:
            times += [model.retry_at, model.grow_at]
        since = waits_since(model)
        if since is not None and any(engine.pending for engine in model.engines):
            seeking = True
            times.append(since + state.limits.max_swap_wait)
    if seeking:
        times += [linger_end(state, engine) for engine in state.engines.values() if engine.idle]
    return min((time for time in times if time is not None and time > now), default=None)


def _expiry(state: State, engine: Engine) -> float | None:
    policy = state.policy_of(engine.model.id)
    if engine.state is not EngineState.READY or engine.leases or policy.pinned or policy.ttl is None:
        return None
    return engine.idle_since + policy.ttl
