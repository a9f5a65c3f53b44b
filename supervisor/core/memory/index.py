"""Caches of index keys, by which sparse attention (DSA, MSA, k-pool) chooses the cells that it attends to."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.memory.cache import CacheLayer, CacheRule
from supervisor.core.spec import Layout, ModelSpec


def index_caches(spec: ModelSpec, layers: Iterable[int] | None = None) -> tuple[CacheRule, ...]:
    """Return one head of keys per token; MSA alone keeps one head of values beside it."""
    indexer = spec.indexer
    if indexer is None or not indexer.width:
        return ()
    chosen = [layer for layer, owns in enumerate(indexer.layers) if owns] if layers is None else layers
    value = spec.head_v if spec.architecture.layout is Layout.MSA else 0
    rows = tuple(CacheLayer(layer, indexer.width, value) for layer in chosen)
    return (CacheRule("index", rows, widest_v=value),) if rows else ()
