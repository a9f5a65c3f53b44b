"""Caches of attention layers: plain and grouped-query, multi-head latent, sliding-window, shared.

One rule covers them. A layer that owns a cache keeps a key and a value per KV head; multi-head latent attention keeps
the latent alone, as a key. Layers with a window go into a second cache that holds little more than the window. Layers
that share the cache of an earlier one own none, so they are not in `kv_layers`.
"""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.memory.cache import CacheLayer, CacheRule
from supervisor.core.spec import ModelSpec


def attention_caches(spec: ModelSpec, layers: Iterable[int] | None = None) -> tuple[CacheRule, ...]:
    """Return the caches of the layers that own one in the main context, or of the layers given."""
    chosen = _owners(spec) if layers is None else tuple(layers)
    widest = max((_value_width(spec, layer) for layer in range(spec.n_layer_all)), default=0)
    dense = tuple(_row(spec, layer) for layer in chosen if not spec.swa_layers[layer])
    windowed = tuple(_row(spec, layer) for layer in chosen if spec.swa_layers[layer])
    rules = (
        CacheRule("attention", dense, widest_v=widest),
        CacheRule("window", windowed, window=spec.window, widest_v=widest),
    )
    return tuple(rule for rule in rules if rule.layers)


def _owners(spec: ModelSpec) -> tuple[int, ...]:
    return tuple(layer for layer, owns in enumerate(spec.kv_layers) if owns)


def _row(spec: ModelSpec, layer: int) -> CacheLayer:
    head = spec.head_k_swa if spec.swa_layers[layer] else spec.head_k
    value = 0 if spec.mla else _value_width(spec, layer)
    return CacheLayer(layer, head * spec.n_head_kv[layer], value)


def _value_width(spec: ModelSpec, layer: int) -> int:
    head = spec.head_v_swa if spec.swa_layers[layer] else spec.head_v
    return head * spec.n_head_kv[layer]
