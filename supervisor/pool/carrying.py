"""Make of the engines that there are what the next process gets to know of them, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from supervisor.core.plan import Placement, Seat
from supervisor.core.schedule.events import Command, Event, RequestId
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.state import Engine
from supervisor.core.takeover.carried import CarriedEngine
from supervisor.core.takeover.lending import LentEngine
from supervisor.engines.engine import ReadyInfo
from supervisor.pool.lease import Running

_LINES, _LINE = 200, 500  # of a log: lines, and characters of each


class Decider(Protocol):
    """Who decides which request gets which engine: the scheduler, or who stands in for it."""

    @property
    def next_wake(self) -> float | None:
        """Time to tell TimePassed."""

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event, and return the commands to carry out."""


@dataclass(frozen=True)
class Adopted:
    """What is known of an engine that runs already, beside what the scheduler is told."""

    ready: ReadyInfo
    asked_at: float
    first_bytes: int | None
    outgrown: bool


def carried_engine(engine: Engine, running: Running) -> CarriedEngine:
    """Return what is carried of an engine that is ready. Raises OSError where it is ending just now."""
    tended, ready, plan = running.engine, running.ready, running.plan
    if tended is None or ready is None:
        raise OSError("an engine is not ready")
    newest = tended.newest(_LINES)
    return CarriedEngine(
        number=engine.id,
        model=engine.model.id,
        process=tended.held(),
        address=tended.client.address,
        argv=tended.argv,
        placement=plan if isinstance(plan, Placement) else None,
        seat=plan if isinstance(plan, Seat) else None,
        slots=engine.slots,
        n_ctx=ready.n_ctx,
        n_slots=ready.n_slots,
        info=dict(ready.info),
        footprint=ready.footprint,
        asked_at=running.asked_at,
        ready_at=engine.ready_at if running.ready_at is None else running.ready_at,
        idle_since=engine.idle_since,
        first_bytes=running.first_bytes,
        outgrown=running.outgrown,
        worn=engine.worn,
        leaving=engine.leaving,
        said=tuple(line[:_LINE] for line, _ in newest),
        notes=tuple(number for number, (_, is_note) in enumerate(newest) if is_note),
    )


def lent_engine(engine: Engine, slots: int, others: set[RequestId]) -> LentEngine:
    """Return the engine as its slots are lent while no scheduler is at work; those that `others` have are not."""
    ours, theirs = engine.leases.keys() - others, engine.leases.keys() & others
    ready = engine.state is EngineState.READY
    return LentEngine(engine.id, engine.model.id, slots - len(theirs), set(ours), open=ready)


def adopted_of(carried: CarriedEngine) -> Adopted:
    """Return what is known of the engine beside what the scheduler is told."""
    ready = ReadyInfo(carried.n_ctx, carried.n_slots, carried.info, carried.footprint)
    return Adopted(ready, carried.asked_at, carried.first_bytes, carried.outgrown)
