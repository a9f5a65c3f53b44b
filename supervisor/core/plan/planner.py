"""Plan: go down the ladder to the first step that fits, then let the context grow as far as memory is free anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from supervisor.core.memory import Refusal
from supervisor.core.plan.advice import does_not_fit, refused
from supervisor.core.plan.compose import compose
from supervisor.core.plan.evict import Leaving, cheapest
from supervisor.core.plan.fitting import Taste, choose
from supervisor.core.plan.growth import can_be_native, grown
from supervisor.core.plan.ladder import Step, Task, find, may_page, possible, task_of
from supervisor.core.plan.space import Space, free_of, held_by, used_by
from supervisor.core.plan.types import Budgets, DoesNotFit, Placement, PlanRequest, Policy, Resident
from supervisor.core.plan.why import reasons


def plan(
    request: PlanRequest, budgets: Budgets, residents: Sequence[Resident], policy: Policy
) -> Placement | DoesNotFit:
    """Return where the model goes, with which context, and who must leave first; or the numbers why it does not fit.

    Pure and deterministic. It raises nothing: what the engine would refuse comes back as a `DoesNotFit` that has a
    `refusal`. Guarantees: no device and no host is filled beyond its budget. The user's settings come out as they went
    in. More memory or one more device never turns a placement into a refusal, nor leads to a later step of the ladder;
    so a wanted context that was reached stays reached. (The first device of a machine may, under a policy without
    `partial_offload`, since the host alone does not count any more.) Nobody is evicted without whom the step fits.

    Args:
        request: the model and what the user decided.
        budgets: what there is for all our engines together.
        residents: the engines that live; what they hold is taken off the budgets.
        policy: how to choose where the user does not say.
    """
    task = task_of(request, budgets, policy)
    if isinstance(task, Refusal):
        return refused(request, task)
    task = replace(task, shunned=used_by(budgets, [one for one in residents if one.model == request.model]))
    free = free_of(budgets, residents)
    movable = [resident for resident in residents if resident.evictable]
    found = _down(task, free, movable)
    if found is None and may_page(request, policy):
        paged = task_of(request, budgets, policy, paged=True)
        found = _down(paged, free, movable) if isinstance(paged, Task) else None
    return found or does_not_fit(task, free, residents)


def _down(task: Task, free: Space, movable: Sequence[Resident]) -> Placement | None:
    """Return the placement of the first step that fits."""
    for step in task.steps:
        placement = _realise(task, step, free, ())
        if placement:
            return placement
        leaving = _leaving(task, step, free, movable)
        placement = _realise(task, step, free, leaving) if leaving else None
        if placement:
            return placement
    return None


def _leaving(task: Task, step: Step, free: Space, movable: Sequence[Resident]) -> Leaving | None:
    """Return the cheapest engines to evict so that the step is possible."""

    def enough(leaving: Leaving) -> bool:
        return possible(task, step, free.plus(held_by(task.budgets, leaving)))

    return cheapest(movable, enough)


def _realise(task: Task, step: Step, free: Space, leaving: Leaving) -> Placement | None:
    """Return the step's placement once these engines have left, where it is possible."""
    space = free.plus(held_by(task.budgets, leaving))
    setting = find(task, step, space)
    if setting is None:
        return None
    taste = Taste(lambda pool: can_be_native(task, setting, space, pool), task.shunned)
    pool = choose(task.sizes, setting, space, task.pools, taste)
    if pool is None:
        return None
    final = grown(task, setting, space, pool)
    placement = compose(task, final, space, pool)
    if placement is None:
        return None
    why = reasons(task, step, (setting, final), (space, pool), leaving, placement.paged_bytes)
    return replace(placement, evict=tuple(resident.engine for resident in leaving), why=why)
