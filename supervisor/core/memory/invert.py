"""Invert the estimate: find the largest context that fits into a budget of bytes."""

from __future__ import annotations

from dataclasses import replace

from supervisor.core.memory.context import CELL_PAD, resolve_context
from supervisor.core.memory.estimate import estimate
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.result import MemoryEstimate
from supervisor.core.spec import ModelSpec


def max_context(spec: ModelSpec, options: EstimateOptions, budget_bytes: int) -> int | None:
    """Return the largest `ctx_size` whose total fits, at most the native context for every slot.

    None where not even the smallest context fits, or the engine refuses the options whatever the context. The total
    never falls as the context grows in steps of one cell row per slot, so halving finds the largest step.
    """
    if not spec.n_ctx_train:
        return None
    step = CELL_PAD * resolve_context(spec, options).streams
    low, high = 0, -(-spec.n_ctx_train // CELL_PAD)  # in steps; `low` fits
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(spec, replace(options, ctx_size=middle * step), budget_bytes):
            low = middle
        else:
            high = middle - 1
    return low * step or None


def _fits(spec: ModelSpec, options: EstimateOptions, budget_bytes: int) -> bool:
    found = estimate(spec, options)
    return isinstance(found, MemoryEstimate) and found.total_bytes <= budget_bytes
