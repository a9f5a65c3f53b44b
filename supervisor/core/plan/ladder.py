"""The ladder: the ways to start a model, the best first, and the best setting of each in a given space.

1. everything on devices, with the wanted context and the best cache type; as few devices as will do
2. the same with the next cache type that the policy allows
3. everything on devices with a smaller context: speed stays, which on the next rungs falls to a fraction
4. mixtures of experts: the experts of as few layers as possible on the host
5. as many layers as possible on devices, the others on the host
6. the host alone

Then, where `overcommit` allows it, the same rungs once more with weights on the host that need no room there.

From rung 3 on the cache type is the last that is allowed; only the host alone gets the best that fits. From rung 4 on
the wanted context comes first, then a smaller one. Every step is asked for what fits in what is free, then for what
fits if idle engines leave. Whether a step fits can only change from no to yes as memory or devices are added, so a plan
never falls to a later step by that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from supervisor.core.memory import CELL_PAD, Refusal
from supervisor.core.plan.bounds import too_large, too_large_for_devices, too_large_for_host
from supervisor.core.plan.contexts import Contexts, contexts_of
from supervisor.core.plan.fitting import fits, fits_pool, host_left
from supervisor.core.plan.pools import Pool, pools_of
from supervisor.core.plan.sizes import Setting, Sizes
from supervisor.core.plan.space import Space
from supervisor.core.plan.types import Budgets, PlanRequest, Policy

Family = Literal["devices", "experts", "layers", "host"]
UNLIMITED = 1 << 62
_PLAIN = ("f16", "f16")


@dataclass(frozen=True, slots=True)
class Step:
    """A rung with all but one thing decided.

    Attributes:
        kv: cache types of keys and values.
        shrink: a context below the wanted one.
        n_cpu_moe: experts of so many layers are on the host; in the family `experts` at least one more, to be found.
    """

    family: Family
    kv: tuple[str, str]
    shrink: bool
    n_cpu_moe: int


@dataclass(frozen=True, slots=True)
class Task:
    """A request, prepared for the search.

    Attributes:
        shunned: devices, by their place in the budgets, on which the model has another engine.
    """

    request: PlanRequest
    budgets: Budgets
    policy: Policy
    pools: tuple[Pool, ...]
    contexts: Contexts
    sizes: Sizes
    steps: tuple[Step, ...]
    kvs: tuple[tuple[str, str], ...]
    shunned: frozenset[int] = frozenset()


def task_of(
    request: PlanRequest, budgets: Budgets, policy: Policy, scale: tuple[int, int] = (1, 1), *, paged: bool = False
) -> Task | Refusal:
    """Return the steps of a request, or the reason why the engine would never start. `scale`, `paged`: see `Sizes`."""
    pools = pools_of(request, budgets)
    if isinstance(pools, Refusal):
        return pools
    sizes = Sizes(request, budgets, scale, paged=paged)
    contexts = contexts_of(request, policy)
    kvs = _accepted(request, policy, sizes)
    if isinstance(kvs, Refusal):
        return kvs
    steps = tuple(_steps(request, policy, sizes, pools, kvs, contexts))
    return Task(request, budgets, policy, pools, contexts, sizes, steps, kvs)


def _accepted(request: PlanRequest, policy: Policy, sizes: Sizes) -> tuple[tuple[str, str], ...] | Refusal:
    """Return the cache types that the engine takes for this model; f16 where the policy names none of them."""
    wanted = _cache_types(request, policy)
    refusals = {}
    for kv in dict.fromkeys((*wanted, _PLAIN)):
        found = sizes.refusal(kv)
        if found:
            refusals[kv] = found
    accepted = tuple(kv for kv in wanted if kv not in refusals)
    if accepted:
        return accepted
    if _PLAIN in refusals or request.explicit.cache_type_k or request.explicit.cache_type_v:
        return next(iter(refusals.values()))
    return (_PLAIN,)


def _cache_types(request: PlanRequest, policy: Policy) -> list[tuple[str, str]]:
    """Return pairs for keys and values.

    Where the user names one of the two, the pair of that type for both is among them, which some models need.
    """
    keys, values = request.explicit.cache_type_k, request.explicit.cache_type_v
    if keys and values:
        return [(keys, values)]
    found = [(keys or kind, values or kind) for kind in policy.kv_types]
    named = keys or values
    return list(dict.fromkeys([*found, (named, named)] if named else found))


def _steps(
    request: PlanRequest,
    policy: Policy,
    sizes: Sizes,
    pools: tuple[Pool, ...],
    kvs: tuple[tuple[str, str], ...],
    contexts: Contexts,
) -> Iterator[Step]:
    base = request.explicit.n_cpu_moe or 0
    shrinks = contexts.floor < contexts.wanted
    for family, moved in _families(request, policy, sizes, pools):
        n_cpu_moe = base if moved is None else moved
        kept = kvs if family in {"devices", "host"} else kvs[-1:]
        yield from (Step(family, kv, False, n_cpu_moe) for kv in kept)
        if shrinks:
            yield Step(family, kvs[-1], True, n_cpu_moe)


def _families(
    request: PlanRequest, policy: Policy, sizes: Sizes, pools: tuple[Pool, ...]
) -> Iterator[tuple[Family, int | None]]:
    """Yield families with the number of layers whose experts are on the host; None for the user's number, or none."""
    explicit = request.explicit
    if not pools or explicit.n_gpu_layers == 0:
        yield "host", None
        return
    yield "devices", None
    experts = policy.cpu_moe and explicit.n_cpu_moe is None and not request.options.cpu_moe
    experts = experts and sizes.table(pools[0].backend).has_experts
    if experts:
        yield "experts", None
    if not policy.partial_offload or explicit.n_gpu_layers is not None:
        return
    if experts:
        yield "layers", sizes.n_places - 1
    yield "layers", None
    if not pools[0].listed:  # the user did not choose devices
        yield "host", None


def may_page(request: PlanRequest, policy: Policy) -> bool:
    """Return whether weights on the host may exceed its memory. llama-server's own fitting assumes that they may."""
    explicit = request.explicit
    return explicit.mapped and (explicit.fit or (explicit.overcommit or policy.overcommit) == "mmap")


def find(task: Task, step: Step, space: Space) -> Setting | None:
    """Return the best setting of a step that fits, without regard to growth."""
    contexts = task.contexts
    if not step.shrink:
        return best_setting(task, step, space, contexts.wanted)
    found = best_setting(task, step, space, contexts.floor)
    if found is None:
        return None
    unit = CELL_PAD * contexts.streams
    low, high = contexts.floor // unit, -(-contexts.wanted // unit)  # `high` does not fit, or is what was wanted
    while high - low > 1:
        middle = (low + high) // 2
        better = best_setting(task, step, space, middle * unit)
        found, low, high = (better, middle, high) if better else (found, low, middle)
    return found


def possible(task: Task, step: Step, space: Space) -> bool:
    """Return whether `find` would find something."""
    contexts = task.contexts
    return best_setting(task, step, space, contexts.floor if step.shrink else contexts.wanted) is not None


def best_setting(task: Task, step: Step, space: Space, ctx_size: int) -> Setting | None:
    """Return the best setting of a step at one context."""
    sizes = task.sizes
    if _hopeless(task, step, space):
        return None
    setting = Setting(ctx_size, step.kv, step.n_cpu_moe, first_layer(task, step))
    if step.family == "experts":
        numbers = step.n_cpu_moe + 1, sizes.n_places - 1
        return _least(task, space, numbers, lambda number: setting._replace(n_cpu_moe=number))
    if step.family == "layers":
        return _least(task, space, (1, sizes.n_places - 1), lambda number: setting._replace(start=number))
    return setting if fits(sizes, setting, space, task.pools) else None


def _hopeless(task: Task, step: Step, space: Space) -> bool:
    sizes, pools = task.sizes, task.pools
    if step.family == "host":
        return too_large_for_host(sizes, space)
    if step.family == "layers":
        return too_large(sizes, space, pools)
    moved = sizes.n_places if step.family == "experts" else step.n_cpu_moe
    start = first_layer(task, step)
    return too_large_for_devices(sizes, space, pools, start, moved) or too_large(sizes, space, pools)


def first_layer(task: Task, step: Step) -> int:
    """Return the first layer on a device, as far as the user or the family decides it."""
    asked = task.request.explicit.n_gpu_layers
    if step.family == "host":
        return task.sizes.n_places
    return 0 if asked is None or asked < 0 else max(0, task.sizes.n_places - asked)


def _least(task: Task, space: Space, numbers: tuple[int, int], make: Callable[[int], Setting]) -> Setting | None:
    """Return the setting with the smallest number that fits.

    A larger number is easier on devices and harder on the host.
    """
    found = [number for pool in task.pools if (number := _least_on(task, space, pool, numbers, make)) is not None]
    return make(min(found)) if found else None


def _least_on(
    task: Task, space: Space, pool: Pool, numbers: tuple[int, int], make: Callable[[int], Setting]
) -> int | None:
    """Return the least number on one pool. What devices leave to the host counts once they hold the most.

    A device that shares the host's memory may hold less than it could, so there the numbers that are left are tried.
    """
    beside = Space(space.devices, UNLIMITED)
    low, high = numbers
    if low > high or not fits_pool(task.sizes, make(high), beside, pool):
        return None
    if host_left(task.sizes, make(low), space, pool) < 0:
        return None
    least = bisect_left(range(low, high), True, key=lambda number: fits_pool(task.sizes, make(number), beside, pool))
    last = low + least
    if any(task.budgets.devices[device].shares_host for device in pool.devices):
        last = high
    for number in range(low + least, last + 1):
        if fits_pool(task.sizes, make(number), space, pool):
            return number
        if host_left(task.sizes, make(number), space, pool) < 0:
            return None
    return None
