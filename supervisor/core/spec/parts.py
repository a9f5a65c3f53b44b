"""The parts of a `ModelSpec` that are small types of their own, each with its reader."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.spec.keys import Keys
from supervisor.core.spec.layers import Blocks, Flags
from supervisor.core.spec.traits import Architecture, IndexerRule, RecurrentFamily
from supervisor.errors import ModelFileError

_MAX_EXPERTS = 1024  # llama.cpp's own limit
_GLM_5_2_CONTEXT = 1 << 20
_GLM_5_2_LAYERS = 78
_TYPES = "attention.indexer.types"
COMPRESSED_RATIO = 4
"""Layers of DeepSeek-4 with this ratio choose among their compressed keys by index keys; others attend to all."""

_STATE_SPACE = frozenset({RecurrentFamily.MAMBA, RecurrentFamily.MAMBA2, RecurrentFamily.DELTA_NET})


@dataclass(frozen=True, slots=True)
class SsmSpec:
    """State-space sizes in Mamba's words; delta nets use them too. `group` is 0 where groups do not count."""

    conv_kernel: int = 0
    inner: int = 0
    state: int = 0
    dt_rank: int = 0
    group: int = 0


@dataclass(frozen=True, slots=True)
class IndexerSpec:
    """The small attention that selects what sparse attention attends to.

    Attributes:
        heads, head_dim, top_k: as in the header.
        layers: per layer, whether it owns a cache of index keys in the main context; others use an earlier layer's.
        width: elements of one cached index key, its pooled parts included.
        kpool: so many keys are pooled; 0: none are.
        block_size: of block-sparse attention (MSA), else 0.
    """

    heads: int
    head_dim: int
    top_k: int
    layers: Flags
    width: int
    kpool: int = 0
    block_size: int = 0


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """Mixture of experts: `used` and the width `ff` per layer; `shared_ff` is the width of all shared ones together."""

    count: int
    used: tuple[int, ...]
    ff: tuple[int, ...]
    shared_ff: int


@dataclass(frozen=True, slots=True)
class PleSpec:
    """Per-layer n-gram embeddings: the history of their convolution is part of the state of `layers`."""

    layers: Flags
    ngram_size: int
    conv_kernel: int


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding as trained; `scaling` is llama.cpp's word (`none`, `linear`, `yarn`, `longrope`)."""

    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    freq_base: float = 10000.0


def read_ssm(keys: Keys, architecture: Architecture) -> SsmSpec:
    if architecture.recurrent is RecurrentFamily.KDA:
        return SsmSpec(conv_kernel=keys.integer("ssm.conv_kernel"))
    if architecture.recurrent not in _STATE_SPACE:
        return SsmSpec()
    return SsmSpec(
        conv_kernel=keys.integer("ssm.conv_kernel"),
        inner=keys.integer("ssm.inner_size"),
        state=keys.integer("ssm.state_size"),
        dt_rank=keys.integer("ssm.time_step_rank"),
        group=keys.integer("ssm.group_count") if architecture.ssm_groups else 0,
    )


def read_rope(keys: Keys, n_ctx_train: int) -> RopeSpec:
    factor = keys.real("rope.scaling.factor", keys.real("rope.scale_linear", 0.0))
    return RopeSpec(
        scaling=keys.text("rope.scaling.type", "linear" if factor else "none"),
        factor=factor or 1.0,
        original_context=keys.integer("rope.scaling.original_context_length", n_ctx_train),
        freq_base=keys.real("rope.freq_base", 10000.0),
    )


def read_experts(keys: Keys, blocks: Blocks) -> ExpertSpec | None:
    """Return the experts; None without any. Those without a width of their own have that of the feed-forward part."""
    count = keys.integer("expert_count", 0)
    if count > _MAX_EXPERTS:
        raise ModelFileError(f"expert_count is {count}; llama.cpp allows {_MAX_EXPERTS}.")
    if count < 2:
        return None
    ff = keys.per_layer("expert_feed_forward_length", blocks.in_file, blocks.n_ff[: blocks.in_file])
    used = keys.per_layer("expert_used_count", blocks.in_file, (0,) * blocks.in_file)
    added = (0,) * (blocks.total - blocks.in_file)
    shared = keys.integer("expert_shared_count", 0) * max(ff)
    return ExpertSpec(
        count=count,
        used=(used + added)[: blocks.total],
        ff=(ff + added)[: blocks.total],
        shared_ff=keys.integer("expert_shared_feed_forward_length", 0) or shared,
    )


def read_ple(keys: Keys, architecture: Architecture, blocks: Blocks) -> PleSpec | None:
    if architecture.indexer is not IndexerRule.RATIO_POOLED or not keys.has("ple.layers"):
        return None
    listed = keys.numbers("ple.layers")
    return PleSpec(
        layers=tuple(layer in listed for layer in range(blocks.total)),
        ngram_size=keys.integer("ple.ngram_size"),
        conv_kernel=keys.integer("ple.conv_kernel"),
    )


def read_indexer(keys: Keys, architecture: Architecture, blocks: Blocks, kv_layers: Flags) -> IndexerSpec | None:
    """Return the indexer, with the layers that own a cache of index keys."""
    rule = architecture.indexer
    if rule is None:
        return None
    top_k = keys.integer("attention.indexer.top_k", 0 if rule is IndexerRule.LISTED_IF_SPARSE else None)
    if top_k == 0 and rule is IndexerRule.LISTED_IF_SPARSE:
        return None
    head_dim = keys.integer("attention.indexer.key_length")
    kpool = _read_kpool(keys, rule, blocks)
    owns = _indexer_layers(keys, rule, blocks)
    return IndexerSpec(
        heads=keys.integer("attention.indexer.head_count"),
        head_dim=head_dim,
        top_k=top_k,
        layers=tuple(indexed and cached for indexed, cached in zip(owns, kv_layers, strict=True)),
        width=head_dim * (_ROW_PARTS[rule] if kpool else 1),
        kpool=kpool,
        block_size=keys.integer("attention.indexer.block_size") if rule is IndexerRule.AFTER_DENSE else 0,
    )


_ROW_PARTS = {IndexerRule.POOLED: 3, IndexerRule.RATIO_POOLED: 2}  # key, gate and pooled key; key and pooled key


def _read_kpool(keys: Keys, rule: IndexerRule, blocks: Blocks) -> int:
    if rule is IndexerRule.POOLED:
        return keys.integer("attention.indexer.kpool")
    return max(blocks.compress_ratios, default=0) if rule is IndexerRule.RATIO_POOLED else 0


def _indexer_layers(keys: Keys, rule: IndexerRule, blocks: Blocks) -> Flags:
    """Return a flag for each layer: it has an indexer of its own, whether or not it owns a cache."""
    match rule:
        case IndexerRule.TRUNK | IndexerRule.RATIO_POOLED:
            return (True,) * blocks.total
        case IndexerRule.AFTER_DENSE:
            dense = keys.integer("leading_dense_block_count", 0)
            return tuple(layer >= dense for layer in range(blocks.total))
        case IndexerRule.COMPRESSED:
            return tuple(ratio == COMPRESSED_RATIO for ratio in blocks.compress_ratios)
        case IndexerRule.LISTED:
            listed = keys.numbers(_TYPES)[: blocks.trunk]
        case IndexerRule.LISTED_IF_SPARSE:
            listed = keys.per_layer(_TYPES, blocks.trunk)
        case IndexerRule.POOLED:
            listed = keys.per_layer(_TYPES, blocks.trunk, (1,) * blocks.trunk)
        case IndexerRule.GLM:
            listed = keys.per_layer(_TYPES, blocks.trunk, _glm_types(keys, blocks.trunk))
    return tuple(kind != 0 for kind in listed) + (False,) * (blocks.total - len(listed))


def _glm_types(keys: Keys, trunk: int) -> tuple[int, ...]:
    """Return the types of a GLM-5 file that lists none: every layer up to 5.1, layers 0, 1, 2, 6, 10 … from 5.2 on."""
    if keys.integer("context_length") < _GLM_5_2_CONTEXT:
        return (1,) * trunk
    return tuple(int(layer < 2 or (layer % 4 == 2 and layer < _GLM_5_2_LAYERS)) for layer in range(trunk))
