"""Let a context grow towards the native one with memory that is free anyway.

Growing evicts nobody, adds no device and moves nothing to the host. Of what is free on the chosen devices once the
smaller context is there, and of what is free on the host, a share is left to the next model. The host's memory is for
the user's other programs too: a model on the host alone does not grow, and of a device that shares the host's memory
at least half of what is free is left.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.memory import CELL_PAD
from supervisor.core.plan.fitting import board_of, fits_list, margin, shape_on
from supervisor.core.plan.ladder import Task
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.sizes import Setting
from supervisor.core.plan.space import Space

_SHARED = 0.5  # of what is free where other programs' memory is, how much is left to them at least


def can_be_native(task: Task, setting: Setting, space: Space, pool: Pool) -> bool:
    """Return whether the setting fits on these devices with the largest context that it may get."""
    if not fits_list(task.sizes, setting, space, pool):
        return False
    if task.contexts.fixed or setting.ctx_size >= task.contexts.native:
        return True
    most = setting._replace(ctx_size=task.contexts.native)
    return fits_list(task.sizes, most, for_growth(task, setting, space, pool), pool)


def grown(task: Task, setting: Setting, space: Space, pool: Pool) -> Setting:
    """Return the setting with the context that it gets in the end, on these devices."""
    on_host = setting.start >= task.sizes.n_places
    if task.contexts.fixed or on_host or setting.ctx_size >= task.contexts.native:
        return setting
    return largest(task, setting, for_growth(task, setting, space, pool), pool)


def largest(task: Task, setting: Setting, space: Space, pool: Pool) -> Setting:
    """Return the setting, which is taken to fit, with the largest context up to the native one that fits."""
    unit = CELL_PAD * task.contexts.streams
    native = task.contexts.native

    def probe(step: int) -> int:
        return margin(task.sizes, setting._replace(ctx_size=min(step * unit, native)), space, pool)

    low, high = setting.ctx_size // unit, -(-native // unit)
    if low >= high:
        return setting
    found = largest_step(low, high, probe)
    return setting._replace(ctx_size=max(setting.ctx_size, min(found * unit, native)))


def largest_step(low: int, high: int, probe: Callable[[int], int]) -> int:
    """Return the largest step from `low` on, which counts as fitting, whose margin is not negative; margins fall.

    They fall almost in a straight line. So the crossing is guessed from both ends, and what comes after a guess that
    fits is asked next, which settles it where the line is straight. An end that stays counts for half, so that it moves
    soon; every fourth question halves the interval, whatever the line.
    """
    above = probe(high)
    if above >= 0:
        return high
    below = max(0, probe(low))
    settle, turn = False, 0
    while high - low > 1:
        turn += 1
        crossing = low + (high - low) * below // (below - above)
        guess = low + 1 if settle else crossing if turn % 4 else (low + high) // 2
        at = min(max(guess, low + 1), high - 1)
        found = probe(at)
        settle = found >= 0 and not settle
        low, below, high, above = (at, found, high, above // 2) if found >= 0 else (low, below // 2, at, found)
    return low


def for_growth(task: Task, setting: Setting, space: Space, pool: Pool) -> Space:
    """Return the space without the share that is left to others, once the setting has what it needs."""
    board = board_of(task.sizes, setting, space, pool, shape_on(task.sizes, setting, len(pool.devices)))
    budgets = task.budgets.devices
    devices = list(space.devices)
    shared = 0
    total = sum(board.free)
    if pool.devices and total > 0:
        used = total - max(0, board.room.first[0] + sum(board.room.others[1:]) - board.need)
        for device, free in zip(pool.devices, board.free, strict=True):
            filled = free * used // total
            devices[device] = free - int(_left(task, budgets[device].shares_host) * (free - filled))
            shared += filled if budgets[device].shares_host else 0
    of_host = _left(task, any(budgets[device].shares_host for device in pool.devices))
    return Space(tuple(devices), space.host - int(of_host * max(0, board.host_left - shared)))


def share_left(task: Task, pool: Pool) -> float:
    """Return the share of what is free on the devices that a growing context leaves free on each of them."""
    return _left(task, all(task.budgets.devices[device].shares_host for device in pool.devices))


def _left(task: Task, shares_host: bool) -> float:
    share = min(1.0, max(0.0, task.policy.growth_share))
    return max(share, _SHARED) if shares_host else share
