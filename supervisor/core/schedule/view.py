"""Views of the scheduler's state, for status pages. Reading them decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.schedule.events import EngineId, Failure, Plan
from supervisor.core.schedule.idle import expiry
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.queue import capacity
from supervisor.core.schedule.state import Engine, Model, State

_FIRST = (EngineState.READY, EngineState.LOADING, EngineState.RESERVED, EngineState.DRAINING, EngineState.STOPPING)


@dataclass(frozen=True, slots=True)
class EngineView:
    """A view of one engine. `slots`: requests that it takes at a time. `plan`: None before there is one."""

    engine: EngineId
    state: EngineState
    leases: int
    slots: int
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class ModelView:
    """A view of one model; `state` and `engine` are those of its most usable engine.

    Attributes:
        failed_at: when the `failure` was, by the scheduler's clock.
        wanted: it was asked for by command, or is to be brought back, and is not ready yet.
        leaves: it is unloaded as soon as nobody waits for it.
        expires_at: when its last idle engine ends for its idleness, by the same clock; None: not as things are.
        waits_since: when the first of those that wait came, by the same clock; None: nobody waits.
        load_seconds: what a load of it takes, as far as known. lease_seconds: what a request takes; None: not known.
    """

    state: EngineState | None  # None: never had an engine
    engine: EngineId | None
    leases: int
    waiting: int
    failure: Failure | None
    engines: tuple[EngineView, ...] = ()
    failed_at: float | None = None
    expires_at: float | None = None
    wanted: bool = False
    waits_since: float | None = None
    load_seconds: float = 0.0
    lease_seconds: float | None = None
    leaves: bool = False


def view_of(state: State, model: Model) -> ModelView:
    """Return a snapshot of one model."""
    best = min(model.engines, key=lambda engine: _FIRST.index(engine.state), default=None)
    return ModelView(
        state=best.state if best else model.last,
        engine=best.id if best else None,
        leases=sum(len(engine.leases) for engine in model.engines),
        waiting=len(model.waiting),
        failure=model.failure,
        engines=tuple(_engine_view(state, engine) for engine in model.engines),
        failed_at=model.failed_at if model.failure else None,
        expires_at=_expires_at(state, model),
        wanted=model.wanted_since is not None,
        waits_since=next((one.arrived for one in model.waiting.values()), None),
        load_seconds=state.reload_seconds(model),
        lease_seconds=model.busy_seconds,
        leaves=model.leaves,
    )


def _expires_at(state: State, model: Model) -> float | None:
    ends = [expiry(state, engine) for engine in model.engines]
    return None if None in ends else max((end for end in ends if end is not None), default=None)


def _engine_view(state: State, engine: Engine) -> EngineView:
    return EngineView(engine.id, engine.state, len(engine.leases), capacity(state, engine), engine.plan)
