"""What flash attention's kernels have beside their output in a compute buffer."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions

_F16_BYTES = 2
_PARTIAL = 32  # tokens and groups of threads that Metal keeps partial results of


def attention_bytes(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> int:
    """Return what flash attention has beside its output: F16 copies of a layer's cache, partial results."""
    traits = options.traits
    if not context.flash_attn:
        return 0
    copied = [_copy(cache, traits.copies) for cache in caches if cache.name != "index" and traits.copies is not None]
    partial = 4 * min(context.n_tokens, _PARTIAL) * _PARTIAL * (facts.widths.queries + 2 * facts.widths.heads)
    return max(copied, default=0) + (partial if traits.pads_attention else 0)


def _copy(cache: Cache, kept: frozenset[str]) -> int:
    keys = 0 if cache.type_k in kept else max(row.k_width for row in cache.layers)
    values = 0 if cache.type_v in kept else max(row.v_width for row in cache.layers)
    return _F16_BYTES * cache.cells * cache.streams * (keys + values)
