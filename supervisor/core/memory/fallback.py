"""Flash attention that llama.cpp turns off by itself (`-fa auto`), since it comes out on another device than its layer.

Where attention is not followed by experts or gates, the nodes of the next layer's recurrent state come between it and
the product that ends it. Each device claims the nodes between its own (`ggml_backend_sched_split_graph`), so attention
goes where those states are. `resolve_fused_ops` of `src/llama-context.cpp` sees that and turns it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions


def scores_on_host(facts: Facts, options: EstimateOptions) -> bool:
    """Return whether caches on the host turn it off."""
    return not options.offload_kv and _may_move(facts, options) and bool(_pairs(facts))


def scores_at_border(facts: Facts, options: EstimateOptions, places: Sequence[int], everywhere: bool) -> bool:
    """Return whether the border between the layers of the host and those of the devices turns it off.

    `everywhere`: the placement stands for others, whose border may be anywhere.
    """
    if not _may_move(facts, options):
        return False
    pairs = [pair for pair in _pairs(facts) if not facts.spec.recurrent_layers[pair[0]]]
    if everywhere and -1 in places[:-1] and max(places) >= 0:
        return bool(pairs)
    return any(places[attention] < 0 <= places[recurrent] for attention, recurrent in pairs)


def _may_move(facts: Facts, options: EstimateOptions) -> bool:
    known = options.traits.offloads and options.flash_attn == "auto"
    return known and not facts.widths.routed and not facts.widths.gated


def _pairs(facts: Facts) -> list[tuple[int, int]]:
    """Return attention layers with the recurrent ones that come after them, but for layers that are neither."""
    spec = facts.spec
    mixing = [layer for layer in range(spec.n_layer) if facts.kinds[layer] != "feed-forward"]
    return [
        (before, layer)
        for before, layer in pairwise(mixing)
        if spec.recurrent_layers[layer] and spec.kv_layers[before] and spec.n_head_kv[before] > 0
    ]
