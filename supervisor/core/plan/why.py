"""The reasons of a placement, in short sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from supervisor.core.plan.cover import most
from supervisor.core.plan.evict import Leaving
from supervisor.core.plan.fitting import board_of, shape_on
from supervisor.core.plan.growth import share_left
from supervisor.core.plan.ladder import Step, Task
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.sizes import Setting
from supervisor.core.plan.space import Space

_MIB = 1 << 20
_GIB = 1 << 30
_DISK = 2 << 30  # bytes per second: a common NVMe drive, for the expected slowness


def gib(size: int) -> str:
    """Return a size for people: `12.3 GiB`, `340 MiB`. A shortage is never rounded to nothing."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{-(-size // _MIB)} MiB"


def listed(names: Sequence[str]) -> str:
    """Return the names as `a`, `a and b`, or `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def reasons(
    task: Task,
    step: Step,
    settings: tuple[Setting, Setting],
    ground: tuple[Space, Pool],
    leaving: Leaving,
    paged_bytes: int = 0,
) -> tuple[str, ...]:
    """Return the reasons, a sentence each.

    `settings`: as it was chosen, and with the context it grew to. `ground`: what was free, and the devices chosen.
    """
    space, pool = ground
    found = [
        *_devices(task, step, settings[1], space, pool),
        *_contexts(task, step, settings, pool),
        *_cache_type(task, step),
        *(_eviction(resident.model, resident.engine, resident.idle_seconds) for resident in leaving),
        *_paging(task, paged_bytes),
    ]
    if task.request.explicit.fit:
        found.append(
            "fit is on: llama-server decides by itself on layers, split and context; the figures are what it is "
            "expected to need at most."
        )
    if task.request.draft is not None:
        found.append(
            "All of the draft model is on the first device." if pool.devices else "The draft model is on the CPU."
        )
    if task.request.learned:
        found.append(f"Compute buffers and reserve are learned: {task.request.learned.source}.")
    found += [
        f"{size >> 20} MiB more are kept free on {name}, because an earlier start ran out of memory there."
        for name, size in sorted(task.request.short.items())
    ]
    return tuple(found)


def _devices(task: Task, step: Step, setting: Setting, space: Space, pool: Pool) -> Iterator[str]:
    names = listed([task.budgets.devices[device].name for device in pool.devices])
    total = task.sizes.n_places
    if step.family == "host":
        yield "Nothing of it fits on a device: all of it is on the CPU." if task.pools else "All of it is on the CPU."
        return
    if setting.start:
        chosen = "" if step.family != "layers" else ", the most that fit"
        yield f"{total - setting.start} of {total} layers are on {names}{chosen}; the others are on the CPU."
    else:
        yield f"All {total} layers are on {names}."
    if setting.n_cpu_moe and not setting.start:
        chosen = ", the fewest that will do" if step.family == "experts" else ""
        yield f"The experts of the first {setting.n_cpu_moe} layers are on the CPU{chosen}."
    if len(pool.devices) > 1 and not task.request.explicit.devices and not pool.shares:
        yield from _not_fewer(task, setting, space, len(pool.devices))


def _not_fewer(task: Task, setting: Setting, space: Space, count: int) -> Iterator[str]:
    """Yield how much would find no place on one device less."""
    found = [_left_over(task, setting, space, pool, count - 1) for pool in task.pools]
    fewer = "one device" if count == 2 else f"{count - 1} devices"
    yield f"With {fewer}, {gib(min(found))} would find no place."


def _left_over(task: Task, setting: Setting, space: Space, pool: Pool, count: int) -> int:
    board = board_of(task.sizes, setting, space, replace(pool, listed=False), shape_on(task.sizes, setting, count))
    if count == 1:
        return max(0, board.need - max(0, *board.room.first))
    return most(board.load.layers, board.room, setting.start, count)


def _contexts(task: Task, step: Step, settings: tuple[Setting, Setting], pool: Pool) -> Iterator[str]:
    contexts = task.contexts
    base, final = (contexts.request_ctx(setting.ctx_size) for setting in settings)
    wanted, native = (contexts.request_ctx(total) for total in (contexts.wanted, contexts.native))
    if contexts.fixed:
        yield f"The context of {contexts.wanted:,} tokens is the one that was asked for."
    elif final >= native:
        yield f"The context is the native one, {native:,} tokens."
    elif base < wanted:
        yield f"The context is {final:,} tokens: the {wanted:,} that are wanted do not fit."
    elif final > base:
        share = f"{share_left(task, pool):.0%}"
        yield f"The context grew from the wanted {wanted:,} to {final:,} tokens; {share} of what was free is left free."
    elif step.family == "host":
        yield f"The context is the wanted one, {wanted:,} tokens; on the CPU it does not grow towards {native:,}."
    else:
        yield f"The context is the wanted one, {wanted:,} tokens; the native one is {native:,}."
    if contexts.slots > 1 and contexts.streams > 1:
        yield f"Each of {contexts.slots} slots has {final:,} tokens of its own; one request gets no more."
    elif contexts.slots > 1:
        yield f"{contexts.slots} slots share the context: one request may use all {final:,} tokens, if others use few."


def _cache_type(task: Task, step: Step) -> Iterator[str]:
    if step.kv == task.kvs[0]:
        return
    where = " on devices alone" if task.pools else ""
    yield f"The cache is {_pair(step.kv)}: with {_pair(task.kvs[0])} the wanted context does not fit{where}."


def _pair(types: tuple[str, str]) -> str:
    keys, values = types
    return keys if keys == values else f"{keys} for keys and {values} for values"


def _paging(task: Task, paged_bytes: int) -> Iterator[str]:
    """Yield how slow the model will be. What has no room is read again for every token, of experts the share in use."""
    if not task.sizes.paged:
        return
    if not paged_bytes:
        yield "Weights on the CPU are mapped from the file."
        return
    experts = task.request.spec.experts
    used = max(experts.used, default=0) / experts.count if experts and experts.count else 1.0
    seconds = paged_bytes * used / _DISK
    yield (
        f"{gib(paged_bytes)} of the weights have no room in memory: they are mapped from the file and read again while "
        f"it generates. Expect about {seconds:.1g} s per token from a disk that reads {_DISK / _GIB:.0f} GiB/s, "
        "and for every batch of a prompt."
    )


def _eviction(model: str, engine: int, idle: float) -> str:
    return f"Engine {engine} ({model}), idle for {idle:.0f} s, must leave first: without its memory this does not fit."
