"""Layers that share caches (Gemma 3n, Gemma 4): the last ones attend to the cache of an earlier layer."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.memory.cache import Cache
from supervisor.core.spec import ModelSpec


def lenders(spec: ModelSpec, here: Sequence[int]) -> list[int]:
    """Return for each of these layers that owns no cache the layer whose cache it attends to."""
    last = {spec.swa_layers[layer]: layer for layer, owns in enumerate(spec.kv_layers) if owns}
    first = max(last.values(), default=0) + 1
    heads = spec.n_head_kv[: spec.n_layer]  # a NextN block attends to none of them
    shares = [
        layer for layer in here if first <= layer < len(heads) and heads[layer] and not spec.recurrent_layers[layer]
    ]
    return [last[spec.swa_layers[layer]] for layer in shares if spec.swa_layers[layer] in last]


def bytes_by_layer(caches: Sequence[Cache]) -> dict[int, int]:
    """Return the bytes of each layer that owns a cache."""
    found: dict[int, int] = {}
    for cache in caches:
        found |= cache.layer_bytes()
    return found
