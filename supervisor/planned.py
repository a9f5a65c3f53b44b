"""A plan as JSON, for programs: `supervisor plan --json` and `POST /api/v1/plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supervisor.core.plan import Placement, Resident
from supervisor.planning import Known, Planner
from supervisor.prepare import EngineMaker


def planned_json(maker: EngineMaker, planner: Planner, known: Known, residents: Sequence[Resident]) -> dict[str, Any]:
    """The placement or the refusal (docs/rest.md): with the models to evict, and what llama-server would be given.

    Raises InvalidRequest, OptionNotSupported.
    """
    found = planner.decide(known, known.entry.options, residents)
    models = {resident.engine: resident.model for resident in residents}
    if not isinstance(found, Placement):
        return found.to_json() | {"blocking_models": [models[engine] for engine in found.blockers]}
    placed = planner.placed(found)
    return found.to_json() | {
        "evict_models": [models[engine] for engine in found.evict],
        "arguments": list(maker.arguments(known, placed)),
        "env": dict(placed.visible_env),
    }
