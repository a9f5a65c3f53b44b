"""The largest set of tensors that are alive at once while a micro-batch runs: the core of a compute buffer.

The scheduler of ggml reuses memory as soon as a tensor is used up, so the buffer depends on the widest place of the
graph, not on how many layers there are. Each term below is one such place, in F32 elements per token; the core is the
largest of them. Terms were found by reading the graphs and confirmed, or raised to be safe, by measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.architectures import Layout, RecurrentFamily
from supervisor.core.ggml import tensor_type
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.graph_recurrent import has_diagonal, recurrent_terms
from supervisor.core.memory.graph_sparse import sparse_terms
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import ModelSpec

_F32 = 4
_F16 = 2
_I64 = 8

_MORE_ROWS = {"cohere2": 1, "grok": 2, "hrm_text": 1, "llada-moe": 1, "llama-embed": 1, "minicpm3": 1, "rnd1": 1}
_MORE_ROWS |= {"smallthinker": 1, "cohere2moe": 3, "falcon-h1": 1, "jamba": 1, "llama4": 2}
"""Rows of the residual stream that these graphs keep for longer: of parallel branches, scales, routers."""
_PLAIN_SCORES = frozenset({Layout.PLAIN, Layout.ISWA})
_WHOLE_QUERIES = frozenset({"bloom", "gpt2", "graniteswitch", "jais", "mpt", "starcoder", "talkie"})
"""Attend with views of one tensor of queries, keys and values, which stays whole."""
_SCANS = frozenset({RecurrentFamily.MAMBA, RecurrentFamily.MAMBA2})
_PARALLEL = frozenset({"command-r", "plamo", "plamo2"})  # attention and feed-forward part side by side
_UNCACHED = frozenset({"llama-embed", "t5encoder"})  # attend within the batch, though they have a cache


@dataclass(frozen=True, slots=True)
class Core:
    """Bytes of the widest places of a graph.

    Attributes:
        all: of the whole graph.
        experts: of the experts alone.
        rest: of the graph without the inside of the experts.
        scans: of Mamba's layers alone, 0 without.
    """

    all: int
    experts: int
    rest: int
    scans: int


def input_bytes(spec: ModelSpec, context: Context, caches: Sequence[Cache]) -> int:
    """What is put in before a batch runs, but for tokens: masks, places of rows, rotations of quantised heads."""
    n = context.n_tokens
    item = _F16 if context.flash_attn else _F32
    if spec.architecture.layout is Layout.NONE or spec.architecture.name in _UNCACHED:
        return n * n * item * (2 if spec.window else 1)
    size = sum(cache.cells * item + 2 * _I64 for cache in caches) * n
    if not context.flash_attn:  # values are transposed: each has a place of its own
        size += sum(max(row.v_width for row in cache.layers) for cache in caches) * n * _I64
    if _is_rotated(caches):
        size += _F32 * sum(head**2 for head in {spec.head_k, spec.head_k_swa})
    return size


def core_of(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache]) -> Core:
    n = context.n_tokens
    row = _F32 * n
    extra = _extra(spec, widths, context, caches)
    experts = widths.routed + (widths.routed_out if 3 * widths.routed_out > 2 * widths.routed else 0)
    recurrent = max(recurrent_terms(spec, widths, context), default=0)
    rest = max(
        widths.ffn + _second_branch(spec, widths, context),
        widths.shared + widths.embd if widths.shared else 0,
        2 * widths.queries + 2 * widths.keys,
        widths.latent,
        widths.vocab * min(n, context.n_outputs) // n,
        _without_flash_attention(spec, widths, context, caches),
        _relative_bias(spec, widths, context),
        recurrent,
    )
    total = max(*sparse_terms(spec, widths, context, max(rest, experts)), max(rest, experts)) + extra
    total = _with_per_layer(spec, widths, total)
    return Core(
        all=total * row,
        experts=experts * row,
        rest=(max(rest, widths.routed_out) + extra) * row,
        scans=recurrent * row if spec.ssm.dt_rank and spec.architecture.recurrent in _SCANS else 0,
    )


def _is_rotated(caches: Sequence[Cache]) -> bool:
    return any(tensor_type(name).quantized for cache in caches for name in (cache.type_k, cache.type_v))


def _extra(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache]) -> int:
    """Elements that stay beside the widest place."""
    name = spec.architecture.name
    rows = _MORE_ROWS.get(name, 0)
    if _is_rotated(caches) and (name in _PARALLEL or widths.per_layer or widths.least_queries < widths.embd):
        rows += 1  # rotated queries do not fit where the stream was
    rotated = widths.queries if widths.per_layer and _is_rotated(caches) else 0
    return rows * widths.embd + rotated


def _without_flash_attention(spec: ModelSpec, widths: Widths, context: Context, caches: Sequence[Cache]) -> int:
    """Scores of every head against all cells."""
    if context.flash_attn:
        return 0
    cached = spec.architecture.layout is not Layout.NONE and spec.architecture.name not in _UNCACHED
    cells = max((cache.cells for cache in caches), default=0) if cached else context.n_tokens
    rows = 5 if has_diagonal(spec) else 0
    if spec.mla and (spec.kda_head_dim or spec.indexer):
        rows = 4
    more = widths.queries + 2 * widths.indexer if spec.indexer and spec.mla else 0
    return cells * widths.heads + _beside_scores(spec, widths) + rows * widths.embd + more


def _beside_scores(spec: ModelSpec, widths: Widths) -> int:
    """Queries in the places where the stream does not leave room for them; gated ones are twice as wide."""
    if _takes_queries_apart(spec) and not widths.per_layer:
        return widths.queries if 4 * widths.queries <= 5 * widths.embd else 2 * widths.queries
    return 3 * widths.queries + 2 * widths.keys + (spec.kv_lora_rank if spec.mla else 0)


def _takes_queries_apart(spec: ModelSpec) -> bool:
    return spec.architecture.layout in _PLAIN_SCORES and spec.architecture.name not in _WHOLE_QUERIES


def _relative_bias(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """T5's bias by distance, for every head and cell, until it is in the order attention wants."""
    if spec.architecture.name == "t5":
        return 4 * widths.heads * context.cells
    return 4 * widths.heads * context.n_tokens if spec.architecture.name == "t5encoder" else 0


def _second_branch(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """CogVLM has a part for text and one for images; Falcon-H1 keeps what attention and Mamba put out, side by side."""
    match spec.architecture.name:
        case "cogvlm" if context.streams > 1:
            return widths.ffn
        case "falcon-h1":
            return widths.ffn // 3
        case _:
            return 0


def _with_per_layer(spec: ModelSpec, widths: Widths, widest: int) -> int:
    """Per-layer embeddings of all layers are alive from the start; while they are made, three or four times."""
    if not widths.per_layer:
        return widest
    if spec.architecture.name == "gemma3n":  # keeps four streams
        return max(widest + widths.per_layer + 5 * widths.embd, 4 * widths.per_layer)
    return max(widest + widths.per_layer, 3 * widths.per_layer)
