"""The largest set of tensors that are alive at once while a micro-batch runs: the core of a compute buffer.

The scheduler of ggml reuses memory as soon as a tensor is used up, so the buffer depends on the widest place of the
graph, not on how many layers there are. Each term below is one such place, in F32 elements per token; the core is the
largest of them. Terms were found by reading the graphs and confirmed, or raised to be safe, by measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.gguf import tensor_type
from supervisor.core.memory.backends import Backend
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.graph_order import order_of
from supervisor.core.memory.graph_recurrent import has_diagonal, recurrent_terms
from supervisor.core.memory.graph_sparse import chooses_blocks, hyper_rows, pool_inputs, sparse_terms
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import Layout, ModelSpec, RecurrentFamily, SecondBranch

_F32 = 4
_F16 = 2
_I64 = 8

_PLAIN_SCORES = frozenset({Layout.PLAIN, Layout.ISWA})
_SCANS = frozenset({RecurrentFamily.MAMBA, RecurrentFamily.MAMBA2})


@dataclass(frozen=True, slots=True)
class Core:
    """Bytes of the widest places of a graph.

    Attributes:
        all: of the whole graph.
        experts: of the experts alone, in the graph's own order, as the host computes them.
        rest: of the graph without the inside of the experts.
        bare: of the graph without anything of the experts.
        scans: of Mamba's layers alone, 0 without.
    """

    all: int
    experts: int
    rest: int
    bare: int
    scans: int


def input_bytes(spec: ModelSpec, context: Context, caches: Sequence[Cache]) -> int:
    """Return the bytes of a batch's inputs except tokens: masks, row indices, rotations of quantised heads."""
    n, biased = context.n_tokens, spec.architecture.graph.relative_bias
    item = _F16 if context.flash_attn else _F32
    if spec.architecture.attends_in_batch:
        return n * n * (item * (2 if spec.window else 1) + (_F32 if biased else 0))
    pools = pool_inputs(spec, context)
    masked = [cache for cache in caches if cache.name != "index" or _masks_index(spec, context)]
    size = (sum(cache.cells for cache in masked) * item + 2 * _I64 * len(caches)) * n + pools
    if has_diagonal(spec):
        size += _F32 * n * n * max(spec.n_head, default=0)
    if biased:
        size += _F32 * n * context.cells
    if not context.flash_attn:  # values are transposed: each has a place of its own
        size += sum(max(row.v_width for row in cache.layers) for cache in caches) * n * _I64
    if is_rotated(caches):
        size += _F32 * sum(head**2 for head in {spec.head_k, spec.head_k_swa})
    return size


def core_of(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache], traits: Backend) -> Core:
    n = context.n_tokens
    order = order_of(spec, widths, context, traits)
    row = _F32 * n
    extra = _extra(spec, widths, context, caches) + order.rows
    experts = max(_experts(widths) + order.experts, order.weighted)
    recurrent = max(recurrent_terms(spec, widths, context), default=0) + order.recurrent
    rest = max(
        widths.ffn + _second_branch(spec, widths, context),
        widths.shared + widths.embd * (2 if widths.single_expert else 1) if widths.shared else 0,
        2 * widths.queries + 2 * widths.keys,
        max(4 * widths.queries, 3 * widths.queries + 3 * widths.keys) if widths.gated else 0,
        widths.latent + max(0, widths.squeezed - widths.embd) if widths.latent else 0,
        widths.queries + 2 * widths.squeezed,
        _logits(spec, widths, context),
        _without_flash_attention(spec, widths, context, caches),
        _relative_bias(spec, widths, context),
        recurrent,
    )
    widest = max(rest, experts)
    total = max(*sparse_terms(spec, widths, context, widest), widest + hyper_rows(spec, widths)) + extra
    total = _with_per_layer(spec, widths, total)
    return Core(
        all=total * row,
        experts=_experts(widths) * row,
        rest=(max(rest, widths.routed_out) + extra) * row,
        bare=(rest + extra) * row,
        scans=recurrent * row if spec.ssm.dt_rank and spec.architecture.recurrent in _SCANS else 0,
    )


def _masks_index(spec: ModelSpec, context: Context) -> bool:
    """Return whether there is a mask as long as the cache of index keys."""
    if spec.architecture.layout is Layout.MSA:
        return chooses_blocks(spec, context)
    return spec.indexer is None or not spec.indexer.kpool


def _logits(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """Return the logits of the outputs, or of the whole batch; twice where they are kept beside the masked ones."""
    n, graph = context.n_tokens, spec.architecture.graph
    if graph.all_logits:
        return widths.vocab
    return widths.vocab * min(n, context.n_outputs) * (2 if graph.masked_logits else 1) // n


def _experts(widths: Widths) -> int:
    """Return the elements of the experts.

    Their output does not reuse the place of gate and up, or of one of them, if it is wider than that.
    """
    one = widths.routed // 3
    if widths.routed_out > 2 * one:
        return widths.routed + widths.routed_out
    return max(widths.routed, 2 * one + widths.routed_out)


def is_rotated(caches: Sequence[Cache]) -> bool:
    """Return whether queries, keys and values are rotated before they are compared: with quantised caches."""
    return any(tensor_type(name).quantized for cache in caches for name in (cache.type_k, cache.type_v))


def _extra(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache]) -> int:
    """Return elements that stay beside the widest place."""
    graph = spec.architecture.graph
    rows = graph.more_rows + (spec.architecture.layout is Layout.NONE)
    apart = widths.least_queries < widths.embd or (widths.least_queries > 3 * widths.embd and not spec.mla)
    if is_rotated(caches) and (graph.parallel or widths.per_layer or apart):
        rows += 1  # rotated queries do not fit where the stream was
    rotated = widths.queries if widths.per_layer and is_rotated(caches) else 0
    return rows * widths.embd + rotated


def _without_flash_attention(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache]) -> int:
    """Return the elements of the scores of every head against all cells."""
    if context.flash_attn:
        return 0
    uncached = spec.architecture.attends_in_batch
    cells = context.n_tokens if uncached else max((cache.cells for cache in caches), default=0)
    if spec.architecture.layout is Layout.DEEPSEEK4:  # compressed cells beside those of the window
        cells += max((cache.cells for cache in caches if cache.name == "window"), default=0)
    rows = 5 if has_diagonal(spec) else 0
    if spec.mla and (spec.kda_head_dim or spec.indexer):
        rows = 4
    more = widths.queries + 2 * widths.indexer if spec.indexer and spec.mla else 0
    return cells * widths.heads + _beside_scores(spec, widths) + rows * widths.embd + more


def _beside_scores(spec: ModelSpec, widths: Widths) -> int:
    """Return the queries beside the scores where the stream leaves no room for them; gated ones are twice as wide."""
    if _takes_queries_apart(spec) and not widths.per_layer:
        parts = [part for part in (widths.ffn, widths.routed) if part]
        narrow = widths.embd if min(parts, default=0) < 3 * widths.embd else 0  # no room where that part was
        return (widths.queries if 4 * widths.queries <= 5 * widths.embd else 2 * widths.queries) + narrow
    return 3 * widths.queries + 2 * widths.keys + (spec.kv_lora_rank if spec.mla else 0)


def _takes_queries_apart(spec: ModelSpec) -> bool:
    return spec.architecture.layout in _PLAIN_SCORES and not spec.architecture.graph.whole_qkv


def _relative_bias(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """Return the elements of a bias by distance, for every head and cell, before it is in attention's order."""
    if not spec.architecture.graph.relative_bias:
        return 0
    return 4 * widths.heads * (context.n_tokens if spec.architecture.attends_in_batch else context.cells)


def _second_branch(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """Return the elements that are alive beside the feed-forward part."""
    match spec.architecture.graph.second_branch:
        case SecondBranch.IMAGES if context.streams > 1:
            return widths.ffn
        case SecondBranch.MIXER:
            return widths.ffn // 3
        case _:
            return 0


def _with_per_layer(spec: ModelSpec, widths: Widths, widest: int) -> int:
    """Return the widest place with per-layer embeddings.

    They are alive from the start; while they are made, they take three or four times the room.
    """
    if not widths.per_layer:
        return widest
    if spec.architecture.graph.altup:
        return max(widest + widths.per_layer + 7 * widths.embd, 4 * widths.per_layer)
    reused = min(2, widths.ffn // widths.per_layer)  # made after the first layer, where its feed-forward part was
    made = widths.ffn + (3 - reused) * widths.per_layer
    return max(widest + widths.per_layer, made) + 2 * widths.embd
