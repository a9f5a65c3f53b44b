"""Forecast how another quantisation of a model would fit, of which only the size is known: search with scaled weights.

There is no estimate of such a file, hence no placement; what is chosen by a forecast is planned by its own header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.memory import Refusal
from supervisor.core.plan.ladder import Family, find, task_of
from supervisor.core.plan.space import free_of, held_by
from supervisor.core.plan.types import Budgets, PlanRequest, Policy, Resident


@dataclass(frozen=True, slots=True)
class Forecast:
    """The outcome of the first step of the ladder that fits.

    Attributes:
        family: of that step; None: nothing fits.
        request_ctx, wanted_ctx: tokens per request.
        reason: why nothing fits.
    """

    family: Family | None
    request_ctx: int = 0
    wanted_ctx: int = 0
    reason: str = ""


def forecast(
    request: PlanRequest,
    budgets: Budgets,
    residents: Sequence[Resident],
    policy: Policy,
    scale: tuple[int, int],
) -> Forecast:
    """Return the forecast for when every idle engine has left; `scale`: (its size, that of the request's model)."""
    task = task_of(request, budgets, policy, scale)
    if isinstance(task, Refusal):
        return Forecast(None, reason=task.message)
    idle = tuple(resident for resident in residents if resident.evictable)
    space = free_of(budgets, residents).plus(held_by(budgets, idle))
    for step in task.steps:
        setting = find(task, step, space)
        if setting is not None:
            contexts = task.contexts
            wanted = contexts.request_ctx(contexts.wanted)
            return Forecast(step.family, contexts.request_ctx(setting.ctx_size), wanted)
    return Forecast(None, reason="does not fit")
