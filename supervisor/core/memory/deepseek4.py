"""DeepSeek-4: a window of latent keys, compressed keys, and the states of their compressors.

Everything is per slot, even where the other caches are unified, and there are no values. Layers with compress ratio 4
have index keys as well, compressed alike.
"""

from __future__ import annotations

from supervisor.core.memory.cache import CacheLayer, CacheRule
from supervisor.core.spec import COMPRESSED_RATIO, ModelSpec

_LONG_RATIO = 128
_F32 = 4
_PARTS = 2  # keys and their scores


def deepseek4_caches(spec: ModelSpec) -> tuple[CacheRule, ...]:
    window = tuple(_row(spec, layer) for layer in range(spec.n_layer_all))
    near = _layers(spec, COMPRESSED_RATIO)
    far = _layers(spec, _LONG_RATIO)
    index = spec.indexer.width if spec.indexer else 0
    rules = (
        CacheRule("window", window, window=spec.window, per_slot=True),
        CacheRule("compressed", tuple(_row(spec, i) for i in near), ratio=COMPRESSED_RATIO, per_slot=True),
        CacheRule("compressed", tuple(_row(spec, i) for i in far), ratio=_LONG_RATIO, per_slot=True),
        CacheRule("index", tuple(CacheLayer(i, index, 0) for i in near), ratio=COMPRESSED_RATIO, per_slot=True),
    )
    return tuple(rule for rule in rules if rule.layers)


def deepseek4_state(spec: ModelSpec, layer: int) -> int:
    """Return bytes of one copy of a layer's compressor states: of keys, of index keys."""
    ratio = spec.compress_ratios[layer]
    if layer >= spec.n_layer:
        return 0
    if ratio == COMPRESSED_RATIO:
        index = spec.indexer.head_dim if spec.indexer else 0
        return _F32 * _PARTS * (2 * ratio) * (2 * spec.head_k + 2 * index)
    return _F32 * _PARTS * ratio * spec.head_k if ratio == _LONG_RATIO else 0


def _layers(spec: ModelSpec, ratio: int) -> tuple[int, ...]:
    return tuple(layer for layer, found in enumerate(spec.compress_ratios) if found == ratio)


def _row(spec: ModelSpec, layer: int) -> CacheLayer:
    head = spec.head_k_swa if spec.swa_layers[layer] else spec.head_k
    return CacheLayer(layer, head * spec.n_head_kv[layer], 0)
