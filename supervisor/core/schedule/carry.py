"""Carry the scheduler's state from one process to the next, which takes over engines that run.

What a daemon has learned goes along: failures, so that a crash loop stays one; how long loads and leases take; who was
asked for. What it was about to do does not: the next one decides anew.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from supervisor.core.schedule.events import EngineAdopted, Failure, ModelId
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.state import Engine, Model, State


@dataclass(frozen=True)
class CarriedModel:
    """A model that somebody has asked for; the fields are those of `state.Model`. wanted: it is yet to be loaded."""

    id: ModelId
    wanted: bool
    target: int
    failure: Failure | None
    failed_at: float | None
    failures: tuple[float, ...]
    retry_at: float
    looped: bool
    load_seconds: float | None
    busy_seconds: float | None
    idle_since: float | None


@dataclass(frozen=True)
class CarriedSchedule:
    """What the scheduler knows; the fields are those of `state.State`."""

    models: tuple[CarriedModel, ...] = ()
    hit_at: float = 0.0
    hit_share: float = 0.0
    load_seconds: float | None = None
    crowds: tuple[int, int] = (0, 0)
    crowd_since: float = 0.0
    last_engine: int = 0


def carried(state: State) -> CarriedSchedule:
    """Return what is to be known to the next scheduler."""
    return CarriedSchedule(
        models=tuple(map(_carried_model, state.models.values())),
        hit_at=state.hit_at,
        hit_share=state.hit_share,
        load_seconds=state.load_seconds,
        crowds=state.crowds,
        crowd_since=state.crowd_since,
        last_engine=state.last_engine,
    )


def restore(state: State, before: CarriedSchedule) -> None:
    """Take it into a state that is new. Engines are told one by one, as EngineAdopted."""
    state.hit_at, state.hit_share = before.hit_at, before.hit_share
    state.load_seconds = before.load_seconds
    state.crowds, state.crowd_since = before.crowds, before.crowd_since
    state.last_engine = max(state.last_engine, before.last_engine)
    for one in before.models:
        model = state.model(one.id)
        model.failure, model.failed_at = one.failure, one.failed_at
        model.failures = deque(one.failures)
        model.retry_at, model.looped = one.retry_at, one.looped
        model.load_seconds, model.busy_seconds = one.load_seconds, one.busy_seconds
        model.idle_since = one.idle_since
        model.target = one.target
        if one.looped:
            model.last = EngineState.FAILED


def adopt(state: State, event: EngineAdopted, now: float) -> None:
    """Take in an engine that is ready, with the requests that have it."""
    model = state.model(event.model)
    engine = Engine(event.engine, model, state=EngineState.READY, plan=event.plan, ordered=event.ready_at)
    engine.used_bytes = event.plan.used_bytes
    engine.slots = event.slots
    engine.ready_at, engine.idle_since = event.ready_at, event.idle_since
    engine.worn = event.worn
    for request in event.leases:
        engine.leases[request] = now
        state.leased[request] = engine
    state.last_engine = max(state.last_engine, event.engine)
    state.engines[event.engine] = engine
    model.engines.append(engine)
    model.target = max(model.target, len(model.serving))
    state.facts += 1
    if event.leaving:
        state.let_go(engine, now=False)


def _carried_model(model: Model) -> CarriedModel:
    coming = any(engine.state is EngineState.RESERVED for engine in model.engines)
    return CarriedModel(
        id=model.id,
        wanted=model.wanted_since is not None or (coming and not model.waiting),
        target=model.target,
        failure=model.failure,
        failed_at=model.failed_at,
        failures=tuple(model.failures),
        retry_at=model.retry_at,
        looped=model.looped,
        load_seconds=model.load_seconds,
        busy_seconds=model.busy_seconds,
        idle_since=model.idle_since,
    )
