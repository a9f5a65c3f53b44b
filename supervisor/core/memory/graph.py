"""The largest set of tensors that are alive at once while a micro-batch runs: the core of a compute buffer.

The scheduler of ggml reuses memory as soon as a tensor is used up, so the buffer depends on the widest place of the
graph, not on how many layers there are. Each term below is one such place; the buffer is as large as the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.architectures import Layout, RecurrentFamily
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import ModelSpec

_F32 = 4
_F16 = 2


def mask_bytes(spec: ModelSpec, context: Context, caches: Sequence[Cache]) -> int:
    """Attention masks: one per cache, as inputs of the graph; of models without a cache one of the batch itself."""
    item = _F16 if context.flash_attn else _F32
    n = context.n_tokens
    if spec.architecture.layout is Layout.NONE:
        return n * n * item * (2 if spec.window else 1)
    return sum(cache.cells for cache in caches) * n * item


def core_bytes(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache]) -> int:
    """The widest place of the graph, without masks and the residual stream."""
    row = _F32 * context.n_tokens
    terms = [
        3 * widths.ffn * row,
        _experts(widths) * row,
        (3 * widths.shared + widths.embd) * row if widths.shared else 0,
        (2 * widths.queries + 2 * widths.keys) * row,
        widths.latent * row,
        _F32 * widths.vocab * min(context.n_tokens, context.n_outputs),
        _recurrent(spec, widths, context),
    ]
    if not context.flash_attn:
        cells = max((cache.cells for cache in caches), default=context.n_tokens)
        terms.append((cells * widths.heads + 3 * widths.queries + 2 * widths.keys) * row)
    return max(*terms, _per_layer(spec, max(terms), row), _diagonal(spec, widths, context)) + _sparse(
        spec, widths, context, caches
    )


def _experts(widths: Widths) -> int:
    """Gate, up and their product; the sum of the outputs where that is wider."""
    return 3 * widths.routed + (widths.routed_out if widths.routed_out > 2 * widths.routed else 0)


def _recurrent(spec: ModelSpec, widths: Widths, context: Context) -> int:
    ssm = spec.ssm
    row = _F32 * context.n_tokens
    states = widths.state * context.states
    mixed = ssm.inner + 2 * ssm.group * ssm.state
    match spec.architecture.recurrent:
        case RecurrentFamily.MAMBA | RecurrentFamily.MAMBA2:
            projected = 2 * ssm.inner + 2 * ssm.group * ssm.state + ssm.dt_rank
            return (projected + 2 * mixed + ssm.inner) * row + states
        case RecurrentFamily.DELTA_NET:
            return 4 * mixed * row + states
        case RecurrentFamily.KDA:
            return 8 * spec.n_head[0] * spec.kda_head_dim * row + states
        case RecurrentFamily.RWKV:
            return 15 * widths.embd * row + states
        case _:
            return 0


def _per_layer(spec: ModelSpec, widest: int, row: int) -> int:
    """Per-layer embeddings of all layers at once."""
    embeddings = spec.per_layer_embd * spec.n_layer * row
    if not embeddings:
        return 0
    return 4 * embeddings if spec.architecture.name == "gemma3n" else max(widest + embeddings, 4 * embeddings)


def _diagonal(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """Lightning attention weighs every token of a batch against every other."""
    if spec.architecture.recurrent is not RecurrentFamily.LIGHTNING:
        return 0
    return _F32 * widths.heads * context.n_tokens**2


def _sparse(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache]) -> int:
    """Scores and choices of an indexer, which are alive beside attention."""
    if spec.indexer is None:
        return 0
    row = _F32 * context.n_tokens
    layout = spec.architecture.layout
    if layout is Layout.DEEPSEEK4:
        return 6 * spec.hyper_connections * widths.embd * row + 3 * widths.indexer * row
    if layout is Layout.MSA:
        return 0 if context.unified else context.cells * widths.heads * row
    chosen = min(spec.indexer.top_k, context.cells)
    return (3 * widths.indexer + 8 * chosen) * row + 6 * context.cells * context.n_tokens
