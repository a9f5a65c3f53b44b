"""Apply the rules of an architecture's row: which layers have a window, a state, a cache, index keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from supervisor.core.spec.keys import Keys
from supervisor.core.spec.traits import Architecture, KvRule, RecurrentRule, SwaRule, WindowKey
from supervisor.errors import ModelFileError

Flags: TypeAlias = tuple[bool, ...]

_PATTERN = "attention.sliding_window_pattern"


@dataclass(frozen=True, slots=True)
class Blocks:
    """The number of layers, and what decides their kind.

    Attributes:
        total: layers, NextN blocks included.
        trunk: layers without the NextN blocks.
        in_file: blocks of the file: `total` unless the blocks are looped or have a router added.
        n_head, n_head_kv, n_ff: per layer.
        hyper_connections: residual streams, 0 without.
        compress_ratios: per layer, 0 where keys are not compressed.
        loops: how often the blocks of the file are run; `total` counts every round.
    """

    total: int
    trunk: int
    in_file: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    hyper_connections: int
    compress_ratios: tuple[int, ...]
    loops: int


def read_window(keys: Keys, swa: SwaRule | None, blocks: Blocks) -> int | None:
    """Return the window; None where no layer has one. It may be 0: llama.cpp makes the second cache all the same."""
    if swa is None or swa.only_n_layer not in {0, blocks.trunk}:
        return None
    required = swa.key is WindowKey.REQUIRED or (swa.uniform_with_hyper_connections and blocks.hyper_connections > 0)
    window = keys.integer("attention.sliding_window", None if required else swa.default)
    if window == 0 and swa.key is WindowKey.OPTIONAL:
        return None
    return swa.fixed or window


def read_swa_layers(keys: Keys, swa: SwaRule | None, blocks: Blocks, recurrent: Flags) -> Flags:
    """Return a flag for each layer: it sees the window only, in a model that has one."""
    if swa is None:
        return (False,) * blocks.total
    if swa.uniform_with_hyper_connections and blocks.hyper_connections:
        return (True,) * blocks.total
    if not swa.listed:
        return tuple(not state for state in recurrent)
    if swa.period is None or keys.is_list(_PATTERN):
        listed = keys.numbers(_PATTERN)[: blocks.total]
        return tuple(flag != 0 for flag in listed) + (False,) * (blocks.total - len(listed))
    period = keys.integer(_PATTERN, swa.period)
    return tuple(layer < blocks.trunk and _is_windowed(layer, period, swa.dense_first) for layer in range(blocks.total))


def _is_windowed(layer: int, period: int, dense_first: bool) -> bool:
    if period == 0:
        return True
    return layer % period != 0 if dense_first else layer % period < period - 1


def read_recurrent_layers(keys: Keys, architecture: Architecture, blocks: Blocks) -> Flags:
    """Return a flag for each layer: it owns a recurrent state."""
    trunk = range(blocks.trunk)
    match architecture.recurrent_rule:
        case None:
            found: Flags = ()
        case RecurrentRule.ALL:
            found = (True,) * blocks.trunk
        case RecurrentRule.NO_KV_HEADS:
            found = tuple(blocks.n_head_kv[layer] == 0 for layer in trunk)
        case RecurrentRule.NO_KV_HEADS_NO_FFN:
            found = tuple(blocks.n_head_kv[layer] == 0 and blocks.n_ff[layer] == 0 for layer in trunk)
        case RecurrentRule.INTERVAL:
            found = _by_interval(keys, architecture.interval, blocks)
    return found + (False,) * (blocks.total - len(found))


def _by_interval(keys: Keys, default: int, blocks: Blocks) -> Flags:
    if keys.has("attention.recurrent_layers"):
        listed = keys.per_layer("attention.recurrent_layers", blocks.total)
        return tuple(flag != 0 for flag in listed[: blocks.trunk])
    interval = keys.integer("full_attention_interval", default)
    if interval == 0:
        raise ModelFileError("full_attention_interval is 0; llama.cpp does not load such a file.")
    return tuple((layer + 1) % interval != 0 for layer in range(blocks.trunk))


def read_kv_layers(keys: Keys, architecture: Architecture, blocks: Blocks, recurrent: Flags) -> Flags:
    """Return a flag for each layer: it owns a cache of keys in the main context."""
    limit = _kv_limit(keys, architecture, blocks)
    return tuple(
        layer < limit and _has_cache(architecture.kv, layer, blocks, recurrent) for layer in range(blocks.total)
    )


def _has_cache(rule: KvRule, layer: int, blocks: Blocks, recurrent: Flags) -> bool:
    match rule:
        case KvRule.ALL:
            return True
        case KvRule.NEVER:
            return False
        case KvRule.TRUNK:
            return layer < blocks.trunk or blocks.trunk == 0
        case KvRule.TRUNK_ATTENTION:
            return layer < blocks.trunk and not recurrent[layer]
        case KvRule.ATTENTION:
            return not recurrent[layer]
        case KvRule.ATTENTION_WITHOUT_FFN:
            return not recurrent[layer] and blocks.n_ff[layer] == 0


def _kv_limit(keys: Keys, architecture: Architecture, blocks: Blocks) -> int:
    """Return the first layer from which on layers share the cache of earlier ones."""
    if architecture.shared_kv:
        return max(blocks.total - keys.integer("attention.shared_kv_layers", 0), 0)
    return architecture.kv_layers or blocks.total
