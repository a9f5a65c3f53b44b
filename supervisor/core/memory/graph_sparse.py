"""Terms of sparse attention: an indexer's scores for every cell, what it chose, and the masks made of the choice."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.memory.context import Context, padded
from supervisor.core.memory.deepseek4 import deepseek4_caches
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import COMPRESSED_RATIO, Layout, ModelSpec

_F32 = 4
_F16 = 2
_POOLS_PAD = 64
_POOLED_PARTS = 4
"""While keys are pooled: keys and gates of all members, the gates again in another order, the keys too."""
_GATHERED = _F32 + 2 * _F16
"""Bytes per element of MSA's gathered keys: as gathered, and keys and values as attention reads them."""


def hyper_rows(spec: ModelSpec, widths: Widths) -> int:
    """Return the elements per token of the residual streams of hyper-connections, before and after the layer."""
    return 2 * spec.hyper_connections * widths.embd


def pooled_keys(spec: ModelSpec, context: Context) -> int:
    """Return the number of pools of all slots: each slot may own all cells of a cache that slots share."""
    indexer = spec.indexer
    if indexer is None or not indexer.kpool:
        return 0
    return context.cells // indexer.kpool * context.n_seq


def pool_inputs(spec: ModelSpec, context: Context) -> int:
    """Return the bytes of the inputs for pools: a mask, and the members of each pool."""
    indexer = spec.indexer
    if indexer is None or not indexer.kpool:
        return 0
    pools = padded(pooled_keys(spec, context) + 1, _POOLS_PAD)
    size = _F16 * pools * context.n_tokens + 8 * _F32 * pools * (indexer.kpool + 1)
    return size + (_F32 * _selection(spec, context) * context.n_tokens if spec.mla else 0)


def chooses_blocks(spec: ModelSpec, context: Context) -> bool:
    """Return whether MSA chooses blocks. It attends to everything in a shared cache, and without flash attention."""
    apart = context.n_seq == 1 or context.streams > 1
    return spec.architecture.layout is Layout.MSA and apart and context.flash_attn


def leaf_bytes(spec: ModelSpec, context: Context, layers: Iterable[int]) -> int:
    """Return the bytes that all layers fill by themselves, as zeros of the choice, all alive from the start."""
    indexer = spec.indexer
    if indexer is None or spec.architecture.layout is Layout.MSA:
        return 0
    here = [layer for layer in layers if layer < spec.n_layer and not spec.recurrent_layers[layer]]
    if spec.architecture.layout is Layout.HYBRID:
        width = indexer.head_dim + (0 if spec.mla else indexer.heads)
        return _F32 * context.n_tokens * width * sum(indexer.layers[layer] for layer in here)
    if spec.architecture.layout is Layout.DEEPSEEK4:
        here = [layer for layer in here if spec.compress_ratios[layer] == COMPRESSED_RATIO]
        item = _F16 if context.flash_attn else _F32
        return item * context.n_tokens * min(indexer.top_k, _compressed(spec, context)) * len(here)
    attending = sum(not spec.swa_layers[layer] for layer in here)
    return _F32 * context.n_tokens * min(indexer.top_k, context.cells) * attending


def sparse_terms(spec: ModelSpec, widths: Widths, context: Context, widest: int) -> tuple[int, ...]:
    """Return elements per token; `widest` is the widest other place, which some graphs hold at the same time."""
    if spec.indexer is None:
        return (0,)
    match spec.architecture.layout:
        case Layout.DEEPSEEK4:
            return _deepseek4(spec, widths, context, widest)
        case Layout.MSA:
            return _blocks(spec, widths, context, widest)
        case Layout.HYBRID:
            return _pooled(spec, widths, context)
        case _:
            beside = 2 * hyper_rows(spec, widths)
            return tuple(term + beside for term in _selected(spec, widths, context, spec.indexer.top_k))


def _selected(spec: ModelSpec, widths: Widths, context: Context, top_k: int) -> tuple[int, ...]:
    """Return the terms of DSA: scores, their order and an empty mask beside the queries; then attention with the mask.

    A mask that is wider than the residual stream takes the room that the queries' parts left, which what attention puts
    out would have taken.
    """
    chosen = min(top_k, context.cells)
    mask = context.cells // 2 if context.flash_attn else context.cells
    apart = widths.latent - widths.queries
    asked = max(widths.latent, widths.queries + 2 * widths.indexer)
    if widths.indexer > apart:
        asked = widths.latent + 2 * widths.indexer
    elif 2 * widths.indexer > apart:
        asked = widths.latent + widths.indexer
    if not context.flash_attn:
        values = spec.kv_lora_rank * context.cells * context.streams // context.n_tokens
        kept = widths.heads * context.cells + values + widths.queries + widths.embd
        return asked + 2 * widths.embd, kept + 2 * (context.cells + chosen)
    attended = 2 * widths.queries + widths.heads * spec.kv_lora_rank + mask if mask > widths.embd else 0
    return asked + 2 * widths.embd, context.cells + mask + 2 * chosen + widths.queries + widths.indexer, attended


def _blocks(spec: ModelSpec, widths: Widths, context: Context, widest: int) -> tuple[int, ...]:
    """Return the terms of MSA: a mask of chosen blocks for every group of heads, one slot after the other.

    With a token per slot they are the chosen cells themselves. Several slots that share a cache attend to all of it.
    """
    assert spec.indexer is not None
    if not chooses_blocks(spec, context):
        return (0,)
    masks = 5 * widths.kv_heads * context.cells // (2 * context.streams) + widths.queries
    kept = context.cells + (masks if widest <= masks else widest + masks)
    chosen = min(context.cells, spec.indexer.block_size * spec.indexer.top_k)
    gathered = _GATHERED * widths.keys * chosen * context.n_seq
    return kept, -(-gathered // (_F32 * context.n_tokens))


def _selection(spec: ModelSpec, context: Context) -> int:
    """Return the number of cells that are looked at: those of the chosen pools, and of an incomplete one."""
    assert spec.indexer is not None
    kpool = spec.indexer.kpool
    pools = padded(pooled_keys(spec, context) + 1, _POOLS_PAD)
    return kpool * min(pools, spec.indexer.top_k // kpool) + kpool - 1


def _pooled(spec: ModelSpec, widths: Widths, context: Context) -> tuple[int, ...]:
    """Return the terms of hybrids with a pooled indexer: the keys of all cells are pooled anew, then a mask is made."""
    assert spec.indexer is not None
    streams = hyper_rows(spec, widths)
    if not spec.indexer.kpool:
        return (streams,)
    selected, kpool = _selection(spec, context), spec.indexer.kpool
    mask = (context.cells + selected) // (2 if context.flash_attn else 1)
    parts = _POOLED_PARTS * kpool if spec.mla else kpool + 2
    pooling = -(-parts * spec.indexer.head_dim * pooled_keys(spec, context) // context.n_tokens)
    pools = padded(pooled_keys(spec, context) + 1, _POOLS_PAD)
    scored = pools + min(pools, spec.indexer.top_k // kpool) + widths.indexer
    if spec.mla:
        choosing = widths.queries + max(7 * selected // 2, 5 * selected // 2 + mask)
    else:
        choosing = 3 * widths.queries + max(5 * selected, 7 * selected // 2 + mask)
    if not context.flash_attn:  # scores of every head, beside the values in another order
        scored += widths.heads * context.cells + spec.kv_lora_rank * context.cells * context.streams // context.n_tokens
    return streams + pooling + widths.embd, streams + scored + choosing, _shifted(spec, widths, context)


def _shifted(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """Return the elements of n-gram embeddings: a convolution over the residual streams, with the tokens before."""
    if spec.ple is None:
        return 0
    row = spec.hyper_connections * widths.embd
    before = max(spec.ple.conv_kernel - 1, 0) * spec.ple.ngram_size
    return 5 * row - (-row * before * context.n_seq // context.n_tokens)


def _compressed(spec: ModelSpec, context: Context) -> int:
    compressed = [rule.cells(context) for rule in deepseek4_caches(spec) if rule.ratio == COMPRESSED_RATIO]
    return max(compressed, default=0)


def _deepseek4(spec: ModelSpec, widths: Widths, context: Context, widest: int) -> tuple[int, ...]:
    """Return the terms of DeepSeek-4: scores of compressed cells.

    Then a mask of the choice, beside that of a window.
    """
    streams = hyper_rows(spec, widths)
    cells = _compressed(spec, context)
    windows = [rule.cells(context) for rule in deepseek4_caches(spec) if rule.window is not None]
    masked = max(windows, default=0) + 2 * cells
    mask = masked // 2 if context.flash_attn else masked
    chosen = 2 * min(cells, spec.indexer.top_k if spec.indexer else 0)
    beside = widest + 3 * widths.embd if not context.flash_attn else 0
    asked = widths.queries + 2 * widths.embd + beside
    return streams + asked + 2 * widths.indexer, streams + asked + widths.indexer + cells + max(chosen, mask)
