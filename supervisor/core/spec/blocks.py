"""Count the layers and read the values per layer, as llama.cpp does before any rule of an architecture applies."""

from __future__ import annotations

from collections.abc import Collection

from supervisor.core.spec.keys import Keys
from supervisor.core.spec.layers import Blocks
from supervisor.core.spec.traits import Architecture, IndexerRule, Layout
from supervisor.errors import ModelFileError

MAX_LAYERS = 512
"""llama.cpp's own limit; of a looped model after its expansion."""


def read_blocks(keys: Keys, architecture: Architecture, tensor_names: Collection[str]) -> Blocks:
    """Return the layers of a file, those without tensors of their own included."""
    total = _within_limit(keys.integer("block_count"))
    nextn = _read_nextn(keys, architecture, total, tensor_names)
    nothing = (0,) * total
    heads = keys.per_layer("attention.head_count", total, nothing)
    blocks = Blocks(
        total=total,
        trunk=total - nextn,
        in_file=total,
        n_head=heads,
        n_head_kv=keys.per_layer("attention.head_count_kv", total, heads),
        n_ff=keys.per_layer("feed_forward_length", total, nothing),
        hyper_connections=keys.integer("hyper_connection.count", None if architecture.hyper_output else 0),
        compress_ratios=_read_ratios(keys, architecture, total),
        loops=1,
    )
    if architecture.loops:
        return _repeated(blocks, keys.integer("num_loops", 1))
    return _with_router(blocks) if architecture.router_layer else blocks


def _read_nextn(keys: Keys, architecture: Architecture, total: int, tensor_names: Collection[str]) -> int:
    nextn = keys.integer("nextn_predict_layers", 0)
    if nextn > total:
        raise ModelFileError(f"nextn_predict_layers is {nextn}, but there are only {total} blocks.")
    probe = f"blk.{total - nextn}.nextn.eh_proj.weight"
    if architecture.layout is Layout.DEEPSEEK4 and probe not in tensor_names:
        return 0
    return nextn


def _read_ratios(keys: Keys, architecture: Architecture, total: int) -> tuple[int, ...]:
    """Return the compress ratios per layer. DeepSeek-4's list may exceed its blocks; others' may be one number."""
    if not architecture.compress_ratios:
        return (0,) * total
    if architecture.indexer is not IndexerRule.COMPRESSED:
        return keys.per_layer("attention.compress_ratios", total, (0,) * total)
    ratios = keys.numbers("attention.compress_ratios")
    if len(ratios) < total:
        raise ModelFileError(f"attention.compress_ratios has {len(ratios)} items for {total} layers.")
    return ratios[:total]


def _repeated(blocks: Blocks, loops: int) -> Blocks:
    """Return the blocks of a looped model: each round has a cache of its own, the weights are the first round's."""
    if loops < 1:
        raise ModelFileError("num_loops is 0; llama.cpp does not load such a file.")
    total = _within_limit(blocks.trunk * loops)
    return Blocks(
        total=total,
        trunk=total,
        in_file=blocks.in_file,
        n_head=blocks.n_head[: blocks.trunk] * loops,
        n_head_kv=blocks.n_head_kv[: blocks.trunk] * loops,
        n_ff=blocks.n_ff[: blocks.trunk] * loops,
        hyper_connections=blocks.hyper_connections,
        compress_ratios=(0,) * total,
        loops=loops,
    )


def _with_router(blocks: Blocks) -> Blocks:
    """Return the trunk and, as its last layer, the router's attention with one head."""
    total = _within_limit(blocks.trunk + 1)
    return Blocks(
        total=total,
        trunk=total,
        in_file=blocks.in_file,
        n_head=(*blocks.n_head[: blocks.trunk], 1),
        n_head_kv=(*blocks.n_head_kv[: blocks.trunk], 1),
        n_ff=(*blocks.n_ff[: blocks.trunk], 0),
        hyper_connections=blocks.hyper_connections,
        compress_ratios=(0,) * total,
        loops=1,
    )


def _within_limit(layers: int) -> int:
    if not 0 < layers <= MAX_LAYERS:
        raise ModelFileError(f"The model has {layers} layers; llama.cpp allows 1 to {MAX_LAYERS}.")
    return layers
