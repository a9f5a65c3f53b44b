"""The edges of the pool: what it needs of the world, made of our parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from supervisor.core.memory.watch import allowed_bytes
from supervisor.core.models.registry import Registry
from supervisor.core.plan import Place, Placement, Seat
from supervisor.core.schedule.events import EngineId, Failure, ModelId, Plan
from supervisor.engines.engine import Engine
from supervisor.engines.kind import Launching
from supervisor.engines.kinds import Parts
from supervisor.planning.lookout import Lookout
from supervisor.planning.planner import Planner
from supervisor.pool.pool import PoolEdges
from supervisor.service.records import Records
from supervisor.service.restore import Remembered
from supervisor.system.wakefulness import lifetime

_log = structlog.get_logger()


Listener: TypeAlias = Callable[[str, ModelId, EngineId, Failure | None], None]
"""Is told what happens to engines: event, model, engine, why."""


@dataclass(frozen=True)
class Edges:
    """The pool's edges.

    share: how far an engine may outgrow its plan, as a share of it; None: as far as it likes.
    """

    registry: Registry
    planner: Planner
    lookout: Lookout
    launchings: Parts[Launching]
    remembered: Remembered
    share: float | None
    records: Records
    listeners: Sequence[Listener] = ()

    def of_pool(self) -> PoolEdges:
        """As the pool wants them."""
        return PoolEdges(
            prepare=self._prepare,
            fetch_and_read=self.planner.fetch_and_read,
            see_room=self.lookout.see_room,
            clock=lifetime,
            observe=self._observe,
            emptied=self.remembered.gone,
            again=self._again,
            allowed=self._allowed,
        )

    async def _prepare(self, model: ModelId, plan: Plan) -> Engine:
        read = self.planner.known(model)
        return await self.launchings.of(read.entry).prepare(read, self.lookout.sight, _ours(plan))

    def _observe(self, event: str, model: ModelId, engine: EngineId, failure: Failure | None) -> None:
        if failure is None:
            _log.info(event, model=model, engine=engine)
        else:
            _log.warning(event, model=model, engine=engine, code=failure.code, reason=failure.message)
        self.records.engine(event, model, engine, failure)
        for one in self.listeners:
            one(event, model, engine, failure)
        if event == "engine_ready":
            self.remembered.ready(model)

    def _again(self, model: ModelId, plan: Plan, failure: Failure) -> bool:
        found = self.planner.failed(model, _ours(plan), failure)
        if found:
            step = self.planner.fallback(self.registry.find(model)).steps[-1]
            _log.warning("load_again", model=model, code=failure.code, step=step)
        return found

    def _allowed(self, plan: Plan) -> int | None:
        placed = _ours(plan)
        if self.share is None or placed.host_growth is None:
            return None
        return allowed_bytes(placed.used_bytes["CPU"], placed.host_growth, self.share)


def _ours(plan: Plan) -> Place:
    assert isinstance(plan, Placement | Seat)  # all that our planner gives
    return plan
