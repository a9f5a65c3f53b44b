"""Bounds that need no search: weights that alone exceed the memory, as of most models that do not fit."""

from __future__ import annotations

from supervisor.core.memory import WeightTable
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.sizes import Sizes
from supervisor.core.plan.space import Space


def too_large(sizes: Sizes, space: Space, pools: tuple[Pool, ...]) -> bool:
    """Return whether weights exceed the host and all devices together."""
    return not sizes.paged and _everything(sizes.table(backend="")) > _devices(space, pools) + max(0, space.host)


def too_large_for_devices(sizes: Sizes, space: Space, pools: tuple[Pool, ...], start: int, n_cpu_moe: int) -> bool:
    """Return whether layers from `start` on exceed all devices, without the first `n_cpu_moe` layers' experts."""
    table = sizes.table(backend="")
    experts = sum(table.experts[max(start, n_cpu_moe) :]) if not sizes.request.options.cpu_moe else 0
    return sum(table.rest[start:]) + experts > _devices(space, pools)


def too_large_for_host(sizes: Sizes, space: Space) -> bool:
    """Return whether weights exceed the host."""
    return not sizes.paged and _everything(sizes.table(backend="")) > space.host


def _everything(table: WeightTable) -> int:
    return sum(table.home_rest) + sum(table.home_experts) + table.input


def _devices(space: Space, pools: tuple[Pool, ...]) -> int:
    used = {device for pool in pools for device in pool.devices}
    return sum(max(0, space.devices[device]) for device in used)
