"""Caches that stay on the host while devices attend (`offload_kv` off): what their copies take on a device.

A device that computes the nodes around attends as well, so the scheduler copies there what a layer attends to: keys and
values of all its cells, then the mask (`ggml_backend_sched_split_graph`). The copies are gone after the layer. The mask
stays: where it lies above them, only what fits into the hole that they leave does not come on top.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.memory.borrowed import bytes_by_layer, lenders
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.graph import is_rotated
from supervisor.core.spec import Layout

_F16, _F32 = 2, 4
_PARTS = 3  # gate, up and their product


def lent_bytes(
    facts: Facts, context: Context, caches: Sequence[Cache], core: int, here: Sequence[int], is_known: bool
) -> int:
    """Return the bytes of a device's widest place beside rows and masks.

    Args:
        core: the widest place without the copies.
        here: the layers on the device.
        is_known: it is the first device that is used, and its rows are known (`is_plain`).
    """
    copies = [_copied(facts, cache) for cache in caches]
    shared = _shared(facts, caches, here)
    if not context.flash_attn or not copies:
        return sum(copies) + core + shared
    queries = _F32 * context.n_tokens * facts.widths.queries
    wide = queries if facts.widths.queries > facts.widths.embd else 0
    hole = max(copies)
    one = hole if facts.spec.architecture.layout is Layout.ISWA else sum(copies)  # a layer has a window, or has none
    attended = one + 2 * wide + (hole // 2 if _is_shifted(facts, len(copies), is_known) else 0)
    if is_known and _is_low(facts, context, caches):
        return max(attended, core) + shared
    left = max(_left(facts, context, hole), _left(facts, context, hole + wide))
    return max(attended, core + left) + shared


def _shared(facts: Facts, caches: Sequence[Cache], here: Sequence[int]) -> int:
    """Return the bytes of copies for layers that share caches.

    They write none, so that nothing is computed on the host between them: copies for all are there from the start.
    """
    sizes = bytes_by_layer(caches)
    return sum(sizes.get(lender, 0) for lender in lenders(facts.spec, here))


def _is_shifted(facts: Facts, n_caches: int, is_known: bool) -> bool:
    """Return whether queries may lie in the hole that an earlier layer's copies left below the mask.

    Then values do not fit beside keys there. They fit where queries always find a place among the rows.
    """
    return not is_known or (n_caches > 1 and facts.widths.queries > facts.widths.embd)


def _copied(facts: Facts, cache: Cache) -> int:
    """Return the bytes that a layer copies. Latent values are a view of the keys, which is copied like any other."""
    size = max(cache.layer_bytes().values(), default=0)
    return 2 * size if facts.spec.mla and cache.name == "attention" else size


def _is_low(facts: Facts, context: Context, caches: Sequence[Cache]) -> bool:
    """Return whether the mask lies among the rows.

    Of two rows there, one of embeddings and their norm, queries take a part. What is left is the mask's, unless keys or
    values find it first.
    """
    if len(caches) > 1 or facts.widths.queries > facts.widths.embd:
        return False
    (cache,) = caches
    if is_rotated(caches):
        return False
    room = _F32 * context.n_tokens * (2 * facts.widths.embd - facts.widths.queries)
    return _F16 * context.n_tokens * cache.cells <= room < _copied(facts, cache) // 2


def _left(facts: Facts, context: Context, hole: int) -> int:
    """Return what is lost of the hole that the copies leave, and the layer's own keys and values.

    A row lies there; then as many tensors of the feed-forward part as fit.
    """
    widths, row = facts.widths, _F32 * context.n_tokens
    part = max(widths.ffn, widths.routed) // _PARTS * row
    kept = min(max(0, hole - widths.embd * row) // part, _PARTS) * part if part else 0
    return hole - kept + 2 * widths.keys * row
