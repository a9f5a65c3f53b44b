"""Act on time alone: end idle engines, and keep one a while for clients that come back quickly."""

from __future__ import annotations

from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.queue import waits_since
from supervisor.core.schedule.replicas import one_less
from supervisor.core.schedule.state import Engine, Model, State

_MANY = 0.1  # the share of hits above which it pays to wait for more of them


def renew(state: State, now: float) -> None:
    """End idle engines that have outgrown their plans; others are to take their places."""
    for engine in () if state.closing else list(state.engines.values()):
        if engine.worn and engine.idle:
            state.stop(engine)
            if engine.model.wanted_since is None:
                engine.model.wanted_since = now


def expire(state: State, now: float) -> None:
    """End engines idle for their model's `ttl`, and everything once a stopping daemon has waited long enough."""
    for engine in list(state.engines.values()):
        end = expiry(state, engine)
        if end is not None and now >= end:
            state.stop(engine)
            one_less(engine.model)
    if state.close_at is not None and now >= state.close_at:
        for engine in list(state.engines.values()):
            state.let_go(engine, now=True)


def linger_end(state: State, engine: Engine) -> float:
    """Return how long an idle engine is kept from those not in a hurry: as long as requests may gather for the swap.

    Where many requests come for what is loaded, half a load longer than the last of them, but no longer than the swap
    and its way back take, counted from the first who waits, or half a load since it became ready. Not at all once as
    many requests are open as there were at most of late: then nobody is left to come.
    """
    first = min((model for model in state.models.values() if _seeks(model)), key=_since, default=None)
    if first is None or state.hit_share < _MANY or state.open >= state.crowd:
        return engine.idle_since
    reload = state.reload_seconds(engine.model)
    pause = min(reload / 2, state.limits.max_linger)
    fair = max(_since(first) + reload + state.reload_seconds(first), engine.ready_at + pause)
    return min(max(state.hit_at, engine.idle_since) + pause, fair)


def _seeks(model: Model) -> bool:
    """Return whether it is waited for with nothing of it on the machine."""
    return waits_since(model) is not None and all(engine.pending for engine in model.engines)


def _since(model: Model) -> float:
    return waits_since(model) or 0.0


def next_wake(state: State, now: float) -> float | None:
    """Return the time at which time alone will change something; None if it never will."""
    times = [state.close_at]
    times += [expiry(state, engine) for engine in state.engines.values()]
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


def expiry(state: State, engine: Engine) -> float | None:
    """Return the time at which an idle engine ends for its idleness; None if it will not as things are."""
    policy = state.policy_of(engine.model.id)
    if engine.state is not EngineState.READY or engine.leases or policy.pinned or policy.ttl is None:
        return None
    return engine.idle_since + policy.ttl
