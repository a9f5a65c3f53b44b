"""What the order of a graph's nodes changes: some back ends compute nodes that are ready before their turn.

Vulkan's and Metal's `graph_optimize` take nodes ahead that depend on nothing before them, so that they run at once.
What those put out is alive for longer: beside attention the feed-forward part of a parallel block, beside routed
experts the shared one. CUDA's keeps what experts put out until it is added up.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.memory.backends import Backend
from supervisor.core.memory.context import Context
from supervisor.core.memory.scans import scans_on_host
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import Layout, ModelSpec, RecurrentFamily


@dataclass(frozen=True, slots=True)
class Order:
    """Elements per token that are alive longer than in the graph's own order.

    Attributes:
        rows: beside the widest place.
        experts: beside the inside of the experts.
        weighted: all of a place of its own: what experts put out, and the same weighted.
        recurrent: beside recurrent layers.
    """

    rows: int = 0
    experts: int = 0
    weighted: int = 0
    recurrent: int = 0


def order_of(spec: ModelSpec, widths: Widths, context: Context, traits: Backend) -> Order:
    weighted = 2 * widths.routed_out if traits.experts_apart and widths.routed else 0
    if not traits.reorders:
        return Order(weighted=weighted)
    return Order(
        rows=_rows(spec, widths, context) * widths.embd,
        experts=_expert_elements(spec, widths),
        weighted=weighted,
        recurrent=_recurrent_rows(spec, context, traits) * widths.embd,
    )


def _expert_elements(spec: ModelSpec, widths: Widths) -> int:
    """Return what is alive beside experts: the shared one, or the dense part beside them, is computed ahead."""
    rows = 2 if any(spec.recurrent_layers) or widths.ffn else 1
    return rows * widths.embd + 2 * widths.shared // 3


def _rows(spec: ModelSpec, widths: Widths, context: Context) -> int:
    graph = spec.architecture.graph
    scores = (0 if context.flash_attn else 2) + graph.ahead_rows
    if graph.parallel:
        return 3 - min(graph.more_rows, 1) + scores
    if widths.per_layer:
        return 2 + scores
    apart = (
        widths.least_queries < widths.embd
        or bool(spec.mla)
        or (spec.architecture.layout is Layout.ISWA and widths.sandwich)
    )
    apart = apart or graph.whole_qkv
    return int(apart) + (2 if graph.more_rows and widths.queries >= widths.embd else 0) + scores


def _recurrent_rows(spec: ModelSpec, context: Context, traits: Backend) -> int:
    match spec.architecture.recurrent:
        case RecurrentFamily.MAMBA | RecurrentFamily.MAMBA2:
            if scans_on_host(spec, traits):
                return 0 if all(spec.recurrent_layers) else 2
            return 3 if context.n_seq > 1 else 0
        case RecurrentFamily.DELTA_NET | RecurrentFamily.KDA:
            return 3
        case _:
            return 0
