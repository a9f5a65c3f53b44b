"""Lend the slots of engines that run, while nobody can start or stop one.

So does the copy of a daemon that is being taken over, from the moment at which its scheduler stands still until the
next one has begun. Who finds no free slot waits; the next scheduler gets all who wait then, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from supervisor.core.schedule.events import (
    Command,
    EngineId,
    Event,
    GrantLease,
    ModelId,
    RequestArrived,
    RequestDone,
    RequestId,
)


@dataclass
class LentEngine:
    """An engine that is ready.

    Attributes:
        slots: requests that it takes at a time.
        leases: those that have it.
        open: it takes further ones.
    """

    engine: EngineId
    model: ModelId
    slots: int
    leases: set[RequestId] = field(default_factory=set)
    open: bool = True

    @property
    def free(self) -> int:
        """Number of requests that it takes now."""
        return self.slots - len(self.leases) if self.open else 0


class Lending:
    """Hears the scheduler's events and gives its commands; of both, those of requests alone.

    Args:
        engines: those that are ready, with their leases.
        waiting: requests that have none, oldest first: number, model, affinity.
    """

    next_wake: float | None = None

    def __init__(
        self, engines: Iterable[LentEngine], waiting: Iterable[tuple[RequestId, ModelId, str | None]] = ()
    ) -> None:
        self._engines = {one.engine: one for one in engines}
        self._waiting = {request: (model, affinity) for request, model, affinity in waiting}

    @property
    def waiting(self) -> tuple[tuple[RequestId, ModelId, str | None], ...]:
        """Requests that wait, oldest first."""
        return tuple((request, model, affinity) for request, (model, affinity) in self._waiting.items())

    @property
    def leases(self) -> tuple[tuple[RequestId, EngineId], ...]:
        """Requests that have an engine."""
        return tuple((request, one.engine) for one in self._engines.values() for request in one.leases)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event, and return the commands to carry out."""
        match event:
            case RequestArrived(request, model, affinity):
                self._waiting[request] = model, affinity
                return self._lend(model)
            case RequestDone(request):
                self._waiting.pop(request, None)
                return self._give_back(request)
            case _:
                return []

    def _give_back(self, request: RequestId) -> list[Command]:
        for one in self._engines.values():
            if request in one.leases:
                one.leases.remove(request)
                return self._lend(one.model)
        return []

    def _lend(self, model: ModelId) -> list[Command]:
        granted: list[Command] = []
        for request in [request for request, (wanted, _) in self._waiting.items() if wanted == model]:
            best = max(
                (one for one in self._engines.values() if one.model == model), key=lambda one: one.free, default=None
            )
            if best is None or best.free <= 0:
                break
            del self._waiting[request]
            best.leases.add(request)
            granted.append(GrantLease(request, best.engine))
        return granted
