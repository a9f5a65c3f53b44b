"""The edges of the pool: what it needs of the world, made of our parts."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from supervisor.core.memory.watch import allowed_bytes
from supervisor.core.plan import Placement
from supervisor.core.schedule.events import EngineId, Failure, ModelId, Plan
from supervisor.engines.engine import Engine
from supervisor.planning.planner import Planner
from supervisor.pool.pool import PoolEdges
from supervisor.service.launcher import EngineMaker
from supervisor.service.restore import Remembered
from supervisor.system.wakefulness import lifetime

_log = structlog.get_logger()


def pool_edges(
    maker: EngineMaker,
    planner: Planner,
    remembered: Remembered,
    share: float | None,
    count: Callable[[ModelId], int],
) -> PoolEdges:
    """Build the edges.

    Args:
        share: how far an engine may outgrow its plan, as a share of it; None: as far as it likes.
        count: how many engines a model has.
    """

    async def prepare(model: ModelId, plan: Plan) -> Engine:
        sight = planner.sight
        return await maker.prepare(planner.known(model), sight.placed(_ours(plan)), sight.devices_of(_ours(plan)))

    def observe(event: str, model: ModelId, engine: EngineId, failure: Failure | None) -> None:
        if failure is None:
            _log.info(event, model=model, engine=engine)
        else:
            _log.warning(event, model=model, engine=engine, code=failure.code, reason=failure.message)
        if event == "engine_ready":
            remembered.ready(model)
        elif event == "engine_gone" and failure is None and count(model) == 1:
            remembered.gone(model)

    def again(model: ModelId, plan: Plan, failure: Failure) -> bool:
        found = planner.failed(model, _ours(plan), failure)
        if found:
            step = planner.fallback(maker.registry.find(model)).steps[-1]
            _log.warning("load_again", model=model, code=failure.code, step=step)
        return found

    def allowed(plan: Plan) -> int | None:
        placed = _ours(plan)
        return None if share is None else allowed_bytes(placed.used_bytes["CPU"], placed.estimate.host_growth, share)

    return PoolEdges(prepare, planner.learn, planner.see_room, lifetime, observe, again, allowed)


def _ours(plan: Plan) -> Placement:
    assert isinstance(plan, Placement)  # all that our planner gives
    return plan
