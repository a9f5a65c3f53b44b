"""The caches of a model, by the layout of its architecture; hybrids have attention caches beside their states."""

from __future__ import annotations

from supervisor.core.memory.attention import attention_caches
from supervisor.core.memory.cache import CacheRule
from supervisor.core.memory.deepseek4 import deepseek4_caches
from supervisor.core.memory.index import index_caches
from supervisor.core.spec import Layout, ModelSpec


def main_caches(spec: ModelSpec) -> tuple[CacheRule, ...]:
    """Return the caches of the main context."""
    if spec.architecture.layout is Layout.DEEPSEEK4:
        return deepseek4_caches(spec)
    return attention_caches(spec) + index_caches(spec)


def draft_caches(spec: ModelSpec) -> tuple[CacheRule, ...]:
    """Return the caches of a draft context: the NextN blocks alone, by the rules of attention."""
    blocks = range(spec.n_layer, spec.n_layer_all)
    pooled = spec.architecture.layout is Layout.HYBRID  # sparse hybrids draft sparsely, the others densely
    return attention_caches(spec, blocks) + (index_caches(spec, blocks) if pooled else ())
