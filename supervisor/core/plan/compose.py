"""Compose a `Placement` from a setting and its devices: the exact estimate of what will be started, part by part.

The search works with demands, which are never less than the estimate. The estimate of the final options is the truth:
if it exceeded anything, there would be no placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from supervisor.core.devices import HOST
from supervisor.core.memory import DeviceEstimate, EstimateOptions, MemoryEstimate, estimate
from supervisor.core.plan.cover import reach
from supervisor.core.plan.fitting import board_of, layers_on, shape_on
from supervisor.core.plan.growth import largest
from supervisor.core.plan.ladder import Task
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.sizes import Setting
from supervisor.core.plan.space import Space
from supervisor.core.plan.types import Budget, DevicePlan, Placement


def compose(task: Task, setting: Setting, space: Space, pool: Pool) -> Placement | None:
    """Return the placement, without its reasons; None if it exceeds something after all."""
    for counts in _divisions(task, setting, space, pool):
        placement = _compose(task, setting, space, pool, counts)
        if placement and min(part.left_bytes for part in placement.parts) >= 0:
            return placement
    return None


def _divisions(task: Task, setting: Setting, space: Space, pool: Pool) -> list[list[int]]:
    """Return layers per device: balanced; and, should that exceed a limit, every device filled in turn."""
    found = [layers_on(task.sizes, setting, space, pool)]
    board = board_of(task.sizes, setting, space, pool, shape_on(task.sizes, setting, len(pool.devices)))
    if len(pool.devices) > 1 and not pool.shares:
        found.append(reach(board.load.layers, board.room, setting.start)[1])
    return found


def _compose(task: Task, setting: Setting, space: Space, pool: Pool, counts: list[int]) -> Placement | None:
    request, explicit = task.request, task.request.explicit
    names = _names(task, pool)
    options = _options(task, setting, pool, names, counts)
    found = estimate(request.spec, options)
    if not isinstance(found, MemoryEstimate):
        return None
    fitting = largest(task, setting._replace(ctx_size=min(setting.ctx_size, task.contexts.native)), space, pool)
    learned = request.learned
    on_devices = setting.start < task.sizes.n_places
    return Placement(
        model=request.model,
        devices=names,
        split_mode=explicit.split_mode or "layer",
        main_gpu=explicit.main_gpu or 0,
        n_gpu_layers=options.n_gpu_layers or 0,
        tensor_split=tuple(counts) if len(counts) > 1 else (),
        n_cpu_moe=setting.n_cpu_moe,
        options=options,
        estimate=found,
        wanted_ctx=task.contexts.request_ctx(task.contexts.wanted),
        native_ctx=request.spec.n_ctx_train,
        fitting_ctx=task.contexts.request_ctx(fitting.ctx_size),
        parts=_parts(task, setting, space, found, (pool, counts)),
        evict=(),
        why=(),
        learned=bool(learned and (learned.compute or learned.overhead_bytes)),
        draft_device=_draft_device(task, names) if request.draft is not None and on_devices else None,
    )


def _names(task: Task, pool: Pool) -> tuple[str, ...]:
    """Return the devices for `--device`: the user's list as it is, or all devices where the user counts in them.

    None where no device holds anything: a device in the engine's list would have a compute buffer without any layer.
    """
    explicit = task.request.explicit
    if explicit.devices is not None:
        sent = {place for _, place in task.request.options.override_tensors}
        return explicit.devices if pool.devices or sent & set(explicit.devices) else ()
    if explicit.split_mode == "none" and explicit.main_gpu is not None and pool.devices:
        return tuple(budget.name for budget in task.budgets.devices)
    return tuple(task.budgets.devices[device].name for device in pool.devices)


def _draft_device(task: Task, names: tuple[str, ...]) -> str:
    """Return the user's device, else the first; the whole list where `--main-gpu` counts in it, as the draft does then.

    `none` is the host.
    """
    wanted = task.request.explicit.draft_device
    if wanted == HOST:
        return "none"
    if wanted is not None and task.request.explicit.split_mode != "none":
        return wanted
    return ",".join(names) if task.request.explicit.split_mode == "none" else names[0]


def _options(
    task: Task, setting: Setting, pool: Pool, names: tuple[str, ...], counts: Sequence[int]
) -> EstimateOptions:
    """Return the options to estimate: devices that can hold layers.

    The user's shares rather than the resulting layers.
    """
    explicit = task.request.explicit
    layers = task.sizes.n_places - setting.start
    used = tuple(task.budgets.devices[device].name for device in pool.devices)
    split = explicit.tensor_split or (tuple(map(float, counts)) if len(counts) > 1 else ())
    return replace(
        task.sizes.options(setting, pool.backend),
        devices=used if pool.devices else names if explicit.devices else (),
        tensor_split=split,
        n_gpu_layers=layers if explicit.n_gpu_layers is None else explicit.n_gpu_layers,
    )


def _parts(
    task: Task, setting: Setting, space: Space, found: MemoryEstimate, division: tuple[Pool, list[int]]
) -> tuple[DevicePlan, ...]:
    pool, counts = division
    sizes = task.sizes
    draft = sizes.draft(setting.ctx_size, pool.backend, not pool.devices)
    budgets = [task.budgets.devices[device] for device in pool.devices]
    parts = []
    shared = 0
    for number, (budget, count) in enumerate(zip(budgets, counts, strict=True)):
        extra = sizes.beside(budget.name, number == 0, draft)
        part = _part(task, budget, found.devices[number], count, extra)
        parts.append(replace(part, left_bytes=space.devices[pool.devices[number]] - part.total_bytes))
        shared += part.total_bytes if budget.shares_host else 0
    extra = sizes.beside(HOST, not pool.devices, draft)[0], draft.host
    host = _part(task, task.budgets.host, found.devices[-1], sizes.n_places - sum(counts), extra)
    host = replace(host, output_bytes=found.output_bytes)
    left = space.host - host.total_bytes - shared
    paged = min(host.weights_bytes, max(0, -left)) if sizes.paged else 0
    parts.append(replace(host, left_bytes=left + paged, paged_bytes=paged))
    return tuple(parts)


def _part(task: Task, budget: Budget, found: DeviceEstimate, layers: int, extra: tuple[int, int]) -> DevicePlan:
    """Return the plan of one device; `extra` are projector and draft."""
    name = HOST if found.name == HOST else budget.name
    return DevicePlan(
        name=name,
        layers=layers,
        weights_bytes=found.weights_bytes,
        kv_bytes=found.kv_bytes,
        recurrent_bytes=found.recurrent_bytes,
        compute_bytes=ceil(found.compute_bytes * task.sizes.factor_of(name)),
        output_bytes=0,
        projector_bytes=extra[0],
        draft_bytes=extra[1],
        reserve_bytes=task.sizes.reserve_of(budget),
        left_bytes=0,
    )
