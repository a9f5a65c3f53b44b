"""Explain why nothing fits: how much is missing where, for the attempt that came nearest, and what would help.

What would help is not guessed: every hint is a variant of the request that was searched and found to fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from supervisor.core.devices import HOST
from supervisor.core.memory import Refusal
from supervisor.core.plan.bounds import too_large
from supervisor.core.plan.cover import missing, reach
from supervisor.core.plan.evict import Leaving, cheapest, cost_of
from supervisor.core.plan.fitting import HOST_ONLY, board_of, list_of, shape_on, shared_out, spent
from supervisor.core.plan.ladder import (
    UNLIMITED,
    Step,
    Task,
    best_setting,
    find,
    first_layer,
    may_page,
    possible,
    task_of,
)
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.sizes import Setting
from supervisor.core.plan.space import Space, held_by
from supervisor.core.plan.types import DoesNotFit, PlanRequest, Policy, Resident, Shortage
from supervisor.core.plan.why import gib, listed

_SMALLER_TYPES = ("q8_0", "q4_0")
_LEAST_CTX = 256
_LEAST_BITS = 1.6  # per weight: IQ1_S, the smallest quantisation that llama.cpp makes
_PARTS = 32
_STAYS = 1e12  # seconds: what it costs to move an engine that cannot be moved


def refused(request: PlanRequest, refusal: Refusal) -> DoesNotFit:
    """Return the answer where the engine would not start, whatever the memory."""
    return DoesNotFit(request.model, later=False, message=refusal.message, refusal=refusal)


def does_not_fit(task: Task, free: Space, residents: Sequence[Resident]) -> DoesNotFit:
    """Return the shortages of the nearest attempt, and hints. `free`: beside all residents."""
    movable = free.plus(held_by(task.budgets, (resident for resident in residents if resident.evictable)))
    blockers = _blockers(task, free, residents)
    attempt = min((_attempt(task, step, movable) for step in _weakest_steps(task)), key=lambda found: found.total)
    name = task.request.model
    where = "; ".join(
        f"{shortage.device}: {gib(shortage.needed_bytes)} needed, {gib(shortage.usable_bytes)} free, "
        f"{gib(shortage.missing_bytes)} missing"
        for shortage in attempt.shortages
    )
    ctx = task.contexts.request_ctx(attempt.setting.ctx_size)
    what = f"{name} does not fit {'now' if blockers else 'here'}, with {ctx:,} tokens of context per request ({where})."
    hints = tuple(_hints(task, movable))
    if blockers:
        waits = listed([f"engine {resident.engine} ({resident.model})" for resident in blockers])
        what = f"{what} It would fit once {waits} left, which cannot leave now (busy or pinned)."
        hints = (f"Unload or unpin {listed([resident.model for resident in blockers])}.", *hints)
    engines = tuple(resident.engine for resident in blockers)
    return DoesNotFit(name, bool(blockers), what, attempt.shortages, hints, engines)


def _blockers(task: Task, free: Space, residents: Sequence[Resident]) -> Leaving:
    """Return engines that cannot leave, few and cheap, without which the best possible step would fit."""
    if all(resident.evictable for resident in residents):
        return ()

    def price(resident: Resident) -> float:
        return cost_of(resident) + (0 if resident.evictable else _STAYS)

    for step in task.steps:

        def enough(leaving: Leaving, step: Step = step) -> bool:
            return possible(task, step, free.plus(held_by(task.budgets, leaving)))

        found = cheapest(residents, enough, price)
        if found:
            return tuple(resident for resident in found if not resident.evictable)
    return ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A setting that does not fit, and the bytes that are missing."""

    setting: Setting
    shortages: tuple[Shortage, ...]

    @property
    def total(self) -> int:
        """Bytes that are missing on all devices together."""
        return sum(shortage.missing_bytes for shortage in self.shortages)


def _attempt(task: Task, step: Step, space: Space) -> Attempt:
    """Return the least that a step would need, on the devices where least is missing."""
    ctx_size = task.contexts.floor if step.shrink else task.contexts.wanted
    setting = best_setting(task, step, Space(space.devices, UNLIMITED), ctx_size) or _weakest(task, step, ctx_size)
    if setting.start >= task.sizes.n_places:
        return Attempt(setting, _short(task, setting, space, HOST_ONLY))
    widest = task.pools[-1]
    lists = [widest]
    if not widest.listed:
        freest = max(range(len(widest.devices)), key=lambda place: space.devices[widest.devices[place]])
        lists = [list_of(widest, [freest])] if widest.single else [widest, list_of(widest, [freest])]
    attempts = [Attempt(setting, _short(task, setting, space, pool)) for pool in lists]
    return min(attempts, key=lambda attempt: attempt.total)


def _weakest_steps(task: Task) -> list[Step]:
    """Return the cheapest step of those that put all on devices, and of those that do not."""
    on_devices = [step for step in task.steps if step.family == task.steps[0].family]
    elsewhere = [step for step in task.steps if step.family != "host"]
    return list(dict.fromkeys([on_devices[-1], (elsewhere or on_devices)[-1]]))


def _weakest(task: Task, step: Step, ctx_size: int) -> Setting:
    setting = Setting(ctx_size, step.kv, step.n_cpu_moe, first_layer(task, step))
    if step.family == "experts":
        return setting._replace(n_cpu_moe=task.sizes.n_places - 1)
    return setting._replace(start=task.sizes.n_places - 1) if step.family == "layers" else setting


def _short(task: Task, setting: Setting, space: Space, pool: Pool) -> tuple[Shortage, ...]:
    """Return the shortages if every device of the list is filled beyond its limit by about the same."""
    sizes = task.sizes
    beside = Space(space.devices, UNLIMITED)
    board = board_of(sizes, setting, beside, pool, shape_on(sizes, setting, len(pool.devices)))
    if setting.start >= sizes.n_places:
        return _too_much([Shortage(HOST, board.load.host, max(0, space.host))])
    counts = shared_out(sizes, setting, pool) if pool.shares else []
    if not counts:
        extra = missing(board.load.layers, board.room, setting.start)
        counts = reach(board.load.layers, board.room.more(extra), setting.start)[1]
    if not pool.listed:  # devices without layers would not be in the list
        pool = list_of(pool, [place for place, count in enumerate(counts) if count])
        counts = [count for count in counts if count]
        board = board_of(sizes, setting, beside, pool, shape_on(sizes, setting, len(pool.devices)))
    needs = spent(board.load, counts, setting.start)
    budgets = [task.budgets.devices[device] for device in pool.devices]
    shared = sum(need for need, budget in zip(needs, budgets, strict=True) if budget.shares_host)
    found = [
        Shortage(budget.name, need, max(0, space.devices[device]))
        for device, budget, need in zip(pool.devices, budgets, needs, strict=True)
    ]
    return _too_much([*found, Shortage(HOST, board.load.host + shared, max(0, space.host))])


def _too_much(found: list[Shortage]) -> tuple[Shortage, ...]:
    return tuple(shortage for shortage in found if shortage.missing_bytes)


def _hints(task: Task, space: Space) -> Iterator[str]:
    if not too_large(task.sizes, space, task.pools):
        yield from _other_settings(task, space)
    yield from _sibling(task, space)
    yield from _paged(task, space)


def _paged(task: Task, space: Space) -> Iterator[str]:
    request, policy = task.request, replace(task.policy, overcommit="mmap")
    request = replace(request, explicit=replace(request.explicit, overcommit=None))
    if not may_page(task.request, task.policy) and _would_fit(request, task, policy, space):
        yield "With weights mapped from the file (overcommit: mmap) it would start, and be slow."


def _other_settings(task: Task, space: Space) -> Iterator[str]:
    request, policy = task.request, task.policy
    yield from _smaller_context(task, space)
    for kind in _SMALLER_TYPES:
        if kind not in {name for kv in task.kvs for name in kv}:
            explicit = replace(request.explicit, cache_type_k=None, cache_type_v=None)
            if _would_fit(replace(request, explicit=explicit), task, replace(policy, kv_types=(kind,)), space):
                yield f"A {kind} cache would fit."
                break
    for sentence, changed in _freer(task):
        if _would_fit(changed[0], task, changed[1], space):
            yield sentence


def _smaller_context(task: Task, space: Space) -> Iterator[str]:
    contexts = task.contexts
    least = _LEAST_CTX * contexts.streams
    if contexts.floor <= least:
        return
    target = contexts.request_ctx(contexts.floor)
    request = replace(task.request, explicit=replace(task.request.explicit, ctx_size=None))
    policy = replace(task.policy, context_target=target, context_min=_LEAST_CTX)
    other = task_of(request, task.budgets, policy)
    if isinstance(other, Refusal):
        return
    for step in other.steps:
        found = find(other, step, space)
        if found:
            yield f"A context of {other.contexts.request_ctx(found.ctx_size):,} tokens per request would fit."
            return


def _freer(task: Task) -> Iterator[tuple[str, tuple[PlanRequest, Policy]]]:
    """Yield variants with less decided by the user or the policy."""
    request, policy, explicit = task.request, task.policy, task.request.explicit
    if explicit.devices is not None or explicit.tensor_split is not None or explicit.split_mode == "none":
        free = replace(explicit, devices=None, tensor_split=None, split_mode=None, main_gpu=None)
        yield "Without a list of devices or a split it would fit.", (replace(request, explicit=free), policy)
    if explicit.n_gpu_layers is not None:
        free = replace(explicit, n_gpu_layers=None)
        yield (
            "With the number of GPU layers left to the planner it would fit.",
            (replace(request, explicit=free), policy),
        )
    if explicit.n_cpu_moe is not None:
        free = replace(explicit, n_cpu_moe=None)
        yield "With n-cpu-moe left to the planner it would fit.", (replace(request, explicit=free), policy)
    if not policy.cpu_moe:
        yield "With experts on the CPU (cpu_moe) it would fit.", (request, replace(policy, cpu_moe=True))
    if not policy.partial_offload:
        yield (
            "With layers on the CPU (partial_offload) it would fit.",
            (request, replace(policy, partial_offload=True)),
        )


def _sibling(task: Task, space: Space) -> Iterator[str]:
    """Yield the largest other quantisation that fits, planned with this one's layers scaled to its size."""
    own = sum(tensor.n_bytes or 0 for tensor in task.request.spec.tensors)
    for name, size in sorted(task.request.siblings, key=lambda sibling: (-sibling[1], sibling[0])):
        if 0 < size < own and _would_fit(task.request, task, task.policy, space, (size, own)):
            yield f"{name} ({gib(size)}) would fit."
            return
    yield from _smaller_file(task, space, own)


def _smaller_file(task: Task, space: Space, own: int) -> Iterator[str]:
    """Yield the largest share of this quantisation's size that would fit, in 32nds, if there is one."""
    elements = sum(tensor.n_elements for tensor in task.request.spec.tensors)
    least = max(1, ceil(_LEAST_BITS * elements * _PARTS / (8 * own))) if own else _PARTS

    def too_large(part: int) -> bool:
        return not _would_fit(task.request, task, task.policy, space, (part, _PARTS))

    if least >= _PARTS or too_large(least):
        return
    size = own * (least + bisect_left(range(least + 1, _PARTS), True, key=too_large)) // _PARTS
    bits = size * 8 / elements
    yield f"A quantisation of {gib(size)} or less would fit: {bits:.1f} bits per weight; this one has {gib(own)}."


def _would_fit(request: PlanRequest, task: Task, policy: Policy, space: Space, scale: tuple[int, int] = (1, 1)) -> bool:
    for paged in (False, True)[: 1 + may_page(request, policy)]:
        other = task_of(request, task.budgets, policy, scale, paged=paged)
        if isinstance(other, Task) and any(possible(other, step, space) for step in other.steps):
            return True
    return False
