"""The caches that mlx-lm keeps for one sequence, one record for each cache of a layer."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CacheKind(enum.Enum):
    """The kinds of cache; the value is the word of `inspect`."""

    FULL = "full"  # every token
    SLIDING = "sliding"  # the last tokens of a window
    LATENT = "latent"  # every token, compressed (multi-head latent attention)
    RECURRENT = "recurrent"  # a state of one size


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One cache.

    Attributes:
        keys, values: numbers that are kept of a token.
        head: those of one head; 0 where keys and values have heads of different widths.
        window: tokens of a sliding one.
        state: numbers of a recurrent one, in the type of the activations.
        state_f32: those of it that are float32 whatever the activations are.
    """

    kind: CacheKind
    keys: int = 0
    values: int = 0
    window: int = 0
    state: int = 0
    state_f32: int = 0
    head: int = 0


def full(keys: int, values: int, head: int = 0) -> LayerCache:
    return LayerCache(CacheKind.FULL, keys, values, head=head)


def sliding(keys: int, values: int, window: int) -> LayerCache:
    return LayerCache(CacheKind.SLIDING, keys, values, window)


def latent(keys: int, values: int) -> LayerCache:
    return LayerCache(CacheKind.LATENT, keys, values)


def recurrent(state: int, state_f32: int = 0) -> LayerCache:
    return LayerCache(CacheKind.RECURRENT, state=state, state_f32=state_f32)
