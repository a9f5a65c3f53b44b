"""Memory of the host that grows while the engine serves; nothing of it is there at the start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from supervisor.core.gguf import row_bytes
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.output import output_growth
from supervisor.core.memory.result import Growth
from supervisor.core.memory.weights import PlacedWeights

_MIB = 1 << 20


def host_growth(
    facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache], placed: PlacedWeights
) -> tuple[Growth, ...]:
    """Return the worst case of each way to grow; those that cannot happen are left out."""
    found: list[Growth] = []
    remembers = bool(caches or any(facts.states)) and not options.embeddings
    if remembers and options.cache_ram:
        found.append(Growth("prompt cache", None if options.cache_ram < 0 else options.cache_ram * _MIB))
    if remembers:
        checkpoint = _checkpoint(facts, context, caches)
        found.append(Growth("context checkpoints", options.ctx_checkpoints * context.n_seq * checkpoint))
    found.append(Growth("output buffer", output_growth(facts.spec, options, context)))
    found.append(Growth("repacked weights", placed.repackable if options.repack else 0))
    return tuple(growth for growth in found if growth.max_bytes != 0)


def _checkpoint(facts: Facts, context: Context, caches: Iterable[Cache]) -> int:
    """Return the bytes of one checkpoint of a slot: its states, and its rows of the caches that forget."""
    rows = sum(_window_row(cache) * min(cache.cells, facts.spec.window + context.n_ubatch) for cache in caches)
    return sum(facts.states) + (0 if context.swa_full else rows)


def _window_row(cache: Cache) -> int:
    if cache.name != "window":
        return 0
    return sum(row_bytes(cache.type_k, row.k_width) + row_bytes(cache.type_v, row.v_width) for row in cache.layers)
