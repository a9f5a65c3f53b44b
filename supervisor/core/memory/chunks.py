"""Buffers that a back end allocates in chunks: a tensor lies in one of them whole."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.memory.backends import Backend
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts

_F32 = 4


def in_chunks(facts: Facts, traits: Backend, context: Context, caches: Sequence[Cache], size: int) -> int:
    """Return the bytes of a compute buffer of this size.

    Attention's scores of every head may be as large as a chunk. Then they have one of their own; where something small
    was put there after one layer, the next layer's scores get another.
    """
    if traits.chunk is None or size <= traits.chunk:
        return size
    row = _F32 * context.n_tokens * facts.widths.embd
    return size + row + (_scores(facts, context, caches) if not context.flash_attn else 0)


def _scores(facts: Facts, context: Context, caches: Sequence[Cache]) -> int:
    cells = max((cache.cells for cache in caches), default=0)
    return _F32 * context.n_tokens * facts.widths.heads * cells
