"""A plan as JSON, for programs: `supervisor plan --json` and `POST /api/v1/plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.config.settings import ModelOptions
from supervisor.core.devices.describe import problems_json
from supervisor.core.plan import DoesNotFit, Placement, Resident
from supervisor.core.schedule import barred_by
from supervisor.errors import EstimateRefused
from supervisor.planning import Known, Planner
from supervisor.prepare import EngineMaker
from supervisor.targets import resolve_target


@dataclass(frozen=True)
class Asked:
    """What to plan for, as in a load: `demo`, an absolute path or an id; a name for it; options that are to change."""

    target: str
    model_id: str | None = None
    options: ModelOptions | None = None


async def planned(
    maker: EngineMaker, planner: Planner, asked: Asked, residents: Callable[[], Sequence[Resident]]
) -> dict[str, Any]:
    """Where the model would go now, beside these engines; nothing is loaded or remembered.

    Engines of the model itself count as gone, as they would be when it is loaded anew. Raises ModelNotFound,
    ModelFileError, EstimateRefused, InvalidRequest, OptionNotSupported and their like.
    """
    entry = await asyncio.to_thread(resolve_target, maker.registry, asked.target, asked.model_id, asked.options)
    if asked.options is not None:
        await asyncio.to_thread(maker.check, entry.options, asked.options.extra_args)
    known = await maker.glance(entry)
    machine = await planner.look()
    found = planned_json(maker, planner, known, [one for one in residents() if one.model != entry.id])
    return found | {"problems": problems_json(machine)}


def planned_json(maker: EngineMaker, planner: Planner, known: Known, residents: Sequence[Resident]) -> dict[str, Any]:
    """The placement or the refusal (docs/rest.md): with the models to evict, and what llama-server would be given.

    Raises InvalidRequest, OptionNotSupported; EstimateRefused where the engine would not start whatever the memory.
    """
    leaving = barred_by(maker.registry.policy_of, known.entry.id, residents)
    found = planner.decide(known, known.entry.options, [one for one in residents if one not in leaving])
    if isinstance(found, DoesNotFit) and found.refusal is not None:
        raise EstimateRefused(found.refusal.code, found.refusal.message)
    models = {resident.engine: resident.model for resident in residents}
    if not isinstance(found, Placement):
        return found.to_json() | {"blocking_models": [models[engine] for engine in found.blockers]}
    placed = planner.placed(found)
    return found.to_json() | {
        "evict": [*(one.engine for one in leaving), *found.evict],
        "evict_models": [*(one.model for one in leaving), *(models[engine] for engine in found.evict)],
        "arguments": list(maker.arguments(known, placed)),
        "env": dict(placed.visible_env),
    }
