"""A plan as JSON, for programs: `supervisor plan --json` and `POST /api/v1/plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial

from supervisor.core.devices.describe import problems_json
from supervisor.core.plan import DoesNotFit, Placement, Resident
from supervisor.core.schedule import ModelPolicy, barred_by, refusal
from supervisor.errors import EstimateRefused, file_refused
from supervisor.planning.planner import Known, Planner, Sight
from supervisor.service.launcher import EngineMaker
from supervisor.service.resolve import Asked, entry_for

__all__ = ["Asked", "planned", "planned_json"]


async def planned(
    maker: EngineMaker,
    planner: Planner,
    asked: Asked,
    residents: Callable[[], Sequence[Resident]],
    policy_of: Callable[[str], ModelPolicy],
) -> dict[str, object]:
    """Where the model would go now, beside these engines; nothing is loaded or remembered.

    `policy_of`: what holds for a model now, pinned by people included.

    Engines of the model itself count as gone, as they would be when it is loaded anew. Raises ModelNotFound,
    ModelFileError, EstimateRefused, InvalidRequest, OptionNotSupported and their like.
    """
    answer = await entry_for(maker, planner, asked, residents)
    entry = answer.entry
    if not asked.keeps:
        await asyncio.to_thread(maker.check, entry.options, asked.extra_args)
    known = await maker.glance(entry)
    sight = await planner.look()
    others = [one for one in residents() if one.model != entry.id]
    leaving = barred_by(policy_of, entry.id, others)
    never = next((one for one in leaving if policy_of(one.model).pinned), None)
    if never is None:
        found = await planner.aside(partial(planned_json, maker, sight, known, others, leaving))
    else:
        message = refusal(entry.id, never.model).message
        found = DoesNotFit(entry.id, later=True, message=message, blockers=(never.engine,)).to_json()
        found |= {"blocking_models": [never.model]}
    return found | {"problems": problems_json(sight.machine), "variants": list(answer.table), "note": answer.note}


def planned_json(
    maker: EngineMaker,
    sight: Sight,
    known: Known,
    residents: Sequence[Resident],
    leaving: Collection[Resident] = (),
) -> dict[str, object]:
    """The placement or the refusal (docs/rest.md): with the models to evict, and what llama-server would be given.

    `leaving`: residents that have to leave however much room there is.

    Raises InvalidRequest, OptionNotSupported; EstimateRefused where the engine would not start whatever the memory.
    """
    found = sight.decide(known, known.entry.options, [one for one in residents if one not in leaving])
    if isinstance(found, DoesNotFit) and found.refusal is not None:
        code, message = found.refusal.code, found.refusal.message
        raise file_refused(code, message) or EstimateRefused(code, message)
    models = {resident.engine: resident.model for resident in residents}
    if not isinstance(found, Placement):
        return found.to_json() | {"blocking_models": [models[engine] for engine in found.blockers]}
    placed = sight.placed(found)
    return found.to_json() | {
        "evict": [*(one.engine for one in leaving), *found.evict],
        "evict_models": [*(one.model for one in leaving), *(models[engine] for engine in found.evict)],
        "arguments": list(maker.arguments(known, placed)),
        "env": dict(placed.visible_env),
    }
