"""Terms of sparse attention: an indexer's scores for every cell, and what it chose."""

from __future__ import annotations

from supervisor.core.architectures import Layout
from supervisor.core.memory.context import Context
from supervisor.core.memory.deepseek4 import deepseek4_caches
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import ModelSpec
from supervisor.core.spec_parts import COMPRESSED_RATIO

_F32 = 4
_BLOCK_BYTES = 1800  # per cell of every slot: fitted


def sparse_terms(spec: ModelSpec, widths: Widths, context: Context, widest: int) -> tuple[int, ...]:
    """Elements per token; `widest` is the widest other place, which some graphs hold at the same time."""
    if spec.indexer is None:
        return (0,)
    match spec.architecture.layout:
        case Layout.DEEPSEEK4:
            return _deepseek4(spec, widths, context, widest)
        case Layout.MSA:
            return (_blocks(widths, context),)
        case Layout.HYBRID:
            return (_pooled(spec, widths, context) + (0 if context.flash_attn else widest),)
        case _:
            return _selected(widths, context, spec.indexer.top_k, windowed=spec.window > 0)


def _selected(widths: Widths, context: Context, top_k: int, windowed: bool) -> tuple[int, ...]:
    """DSA: the indexer's queries and scores; then attention with a mask of what was chosen.

    dots3note, which has windowed layers too, goes without the choice's scores.
    """
    chosen = 0 if windowed else min(top_k, context.cells)
    return (
        4 * widths.queries + chosen + context.cells + (0 if windowed else 3 * widths.indexer),
        3 * widths.indexer + 10 * widths.embd + 2 * context.cells + 6 * chosen,
    )


def _blocks(widths: Widths, context: Context) -> int:
    """MSA. A single slot scores every head; several slots that share a cache score blocks only."""
    if context.n_seq == 1:
        return max(widths.heads, 4) * context.cells + 6 * widths.embd
    if context.streams == 1:
        return 0
    chosen = _BLOCK_BYTES * context.n_seq * context.cells // (_F32 * context.n_tokens)
    return max(max(widths.kv_heads, 4) * context.cells * 5 // 4, chosen)


def _pooled(spec: ModelSpec, widths: Widths, context: Context) -> int:
    """Hybrids with a pooled indexer: every slot scores all cells, those of a shared cache too; states stay alive."""
    cells = context.cells * context.n_seq
    states = -(-2 * widths.state * context.states // (_F32 * context.n_tokens))
    if spec.mla:
        return 21 * cells // 4 + widths.indexer // 4 + states
    return 25 * cells // 4 + widths.indexer + states


def _deepseek4(spec: ModelSpec, widths: Widths, context: Context, widest: int) -> tuple[int, ...]:
    streams = spec.hyper_connections * widths.embd
    compressed = [rule.cells(context) for rule in deepseek4_caches(spec) if rule.ratio == COMPRESSED_RATIO]
    cells = max(compressed, default=0)
    beside = widest if not context.flash_attn else 0
    return 6 * streams + widest, 2 * widths.indexer + 4 * streams + 3 * cells // 2 + beside
