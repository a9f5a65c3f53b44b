"""Weights that stay on the host and are computed with on the first device: what that takes there.

For batches of 32 tokens and more some back ends compute there what has weights on the host (`offload_op`, and
`ggml_backend_sched_backend_id_from_cur` of `ggml-backend.cpp`). One weight after the other is copied into the compute
buffer. Beside the largest are the tensors that are alive around it; layers that are on the host altogether bring their
caches too.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts, is_plain
from supervisor.core.memory.graph import input_bytes, is_rotated
from supervisor.core.memory.graph_sparse import leaf_bytes
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import ModelSpec

_LEAST_TOKENS = 32
_F32 = 4
_MARGIN_BYTES = 104858
_ROWS, _PLAIN_ROWS = 6, 4  # of the residual stream; of layers as in `Facts.is_plain`


def carries(options: EstimateOptions, context: Context, places: Sequence[int]) -> bool:
    """Return whether the first device computes with weights of the host."""
    if not (options.traits.offloads and options.op_offload and options.devices):
        return False
    left = -1 in places[:-1] or options.cpu_moe or options.n_cpu_moe > 0 or bool(options.override_tensors)
    return left and max(places) >= 0 and context.n_tokens >= _LEAST_TOKENS


def carried_bytes(
    facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache], places: Sequence[int], other: int
) -> int:
    """Return the first device's bytes while it computes with weights of the host; 0 where it does not.

    `other`: what it takes for its own layers.
    """
    if not carries(options, context, places):
        return 0
    whole = -1 in places[:-1]
    found = [_experts(facts, options, context, caches, other, whole)] if facts.widths.routed else []
    if whole:
        found.append(_layer(facts, options, context, caches) + _looped(facts, places))
        if facts.spec.indexer:  # what it scores and chooses is alive beside the copies
            here = [layer for layer, place in enumerate(places[:-1]) if place < 0]
            found.append(
                other
                + 6 * _F32 * context.n_tokens * facts.widths.embd
                + sum(_low(facts, options, context, caches))
                + leaf_bytes(facts.spec, context, here)
            )
    if (
        facts.widths.routed and not options.offload_kv and not is_plain(facts, options.traits)
    ):  # caches lent by the host are beside them
        found.append(other + _largest(facts, options.traits.largest))
    if not found:
        return 0
    size = max(found) + input_bytes(facts.spec, context, caches) + _MARGIN_BYTES
    if whole and not context.flash_attn:
        size = max(size, other + _low(facts, options, context, caches)[1])
    return _in_chunks(facts, options, context, size)


def _in_chunks(facts: Facts, options: EstimateOptions, context: Context, size: int) -> int:
    """Return the bytes of a buffer of this size.

    A tensor that reaches beyond the first chunk lies in the next altogether, and leaves a hole.
    """
    chunk, widths = options.traits.chunk, facts.widths
    if not chunk or size <= chunk:
        return size
    return size + _F32 * context.n_tokens * max(widths.ffn // 3, widths.routed // 3, widths.routed_out)


def _experts(
    facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache], other: int, whole: bool
) -> int:
    """Return the bytes of an expert tensor and what is around it: gate and up, or up and what is put out.

    Args:
        other: bytes of the device's other places, which a tensor in a chunk of its own does not reuse.
        whole: layers are on the host altogether.
    """
    widths, spec = facts.widths, facts.spec
    weight = _largest(facts, options.traits.largest)
    one, row = widths.routed // 3, _F32 * context.n_tokens
    inside = row * max(3 * one if weight < one * row else 2 * one, one + widths.routed_out)
    low, hole = _low(facts, options, context, caches) if whole or not options.offload_kv else (6 * widths.embd * row, 0)
    hole = max(hole, _unplaced(facts, options, context)) if whole else hole
    chunk = options.traits.chunk
    if chunk and weight >= chunk:
        return (
            max(low + inside, other + (6 * widths.embd * row if spec.indexer else 0))
            + hole
            + weight * (2 if _is_late(spec) else 1)
        )
    if _is_late(spec) and _is_fused(spec):
        weight += weight // 2
    return low + hole + _above(hole, weight, inside) + (_beside_copies(facts, options, hole // 2) if whole else 0)


def _beside_copies(facts: Facts, options: EstimateOptions, least: int) -> int:
    """Return the bytes of the copy that queries are projected with, if the place it leaves is less than `least`."""
    return facts.projection if is_plain(facts, options.traits) and facts.projection < least else 0


def _largest(facts: Facts, limit: int | None) -> int:
    """Return the bytes of the largest tensor of experts that a device takes."""
    if limit is None or facts.largest_expert <= limit:
        return facts.largest_expert
    sizes = [tensor.n_bytes or 0 for layer in facts.weights.layers for tensor in layer.experts.tensors]
    return max((size for size in sizes if size <= limit), default=0)


def _is_late(spec: ModelSpec) -> bool:
    """Return whether a mask comes after a layer's experts, and so lies above their weights."""
    return spec.recurrent_layers[0]


def _is_fused(spec: ModelSpec) -> bool:
    return any("ffn_gate_up_exps" in tensor.name for tensors in spec.groups.one_of_each() for tensor in tensors)


def _layer(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> int:
    """Return the bytes of a layer's largest matrix, its cache, and what is around them.

    What is around the matrix may lie where the cache was.
    """
    widths, row = facts.widths, _F32 * context.n_tokens
    weight = max((layer.rest.largest for layer in facts.weights.layers), default=0)
    low, cache = _low(facts, options, context, caches)
    cache = max(cache, _unplaced(facts, options, context))
    inside = widths.ffn * row if weight < widths.ffn * row // 3 else _two_of(widths) * row
    again = cache // 2  # the next layer's values may not fit below the mask, beside what lies there by then
    found = max(_above(cache, weight, inside), 2 * widths.queries * row, again)
    if is_plain(
        facts, options.traits
    ):  # keys or values may lie among the rows, so that the place between is half as large
        found = max(found, _above(again, weight, inside) - again)
    return low + cache + found


def _looped(facts: Facts, places: Sequence[int]) -> int:
    """Return the bytes of the host's layers if they are run again: then copies of their weights are kept."""
    if not facts.spec.architecture.graph.looped:
        return 0
    return sum(part.whole.n_bytes for part, place in zip(facts.weights.layers, places, strict=False) if place < 0)


def _low(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> tuple[int, int]:
    """Return what lies below a mask for a layer of the host: rows and queries; and the copy of its cache."""
    widths = facts.widths
    cache = max((_bytes_of_layer(one) for one in caches), default=0)
    rows = _PLAIN_ROWS + is_rotated(caches) if is_plain(facts, options.traits) else _ROWS
    return (rows * widths.embd + widths.queries) * _F32 * context.n_tokens, cache


def _unplaced(facts: Facts, options: EstimateOptions, context: Context) -> int:
    """Return what attention's projection leaves below the row that it puts out, where the cache is smaller than that.

    Queries of another width than a row leave holes in which no row fits.
    """
    if not is_plain(facts, options.traits):
        return 0
    rows = 2 if facts.widths.queries != facts.widths.embd else 0
    return facts.projection + rows * _F32 * context.n_tokens * facts.widths.embd


def _two_of(widths: Widths) -> int:
    """Return gate and up; with one tensor alone, that."""
    return 2 * widths.ffn // 3 if widths.gate else widths.ffn


def _above(hole: int, weight: int, inside: int) -> int:
    if hole >= weight + inside:
        return 0
    return max(inside, weight) if hole >= weight else weight + inside


def _bytes_of_layer(cache: Cache) -> int:
    return max(cache.layer_bytes().values(), default=0)
