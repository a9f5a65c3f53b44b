"""How a model is run, in llama-server's words for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.mlx.facts import MlxFacts
from supervisor.core.mlx.memory import MlxSettings
from supervisor.errors import EstimateRefused, InvalidRequest

FUSED: Final = sys.platform == "darwin"
"""Attention needs no matrix of scores on Metal."""

CONTEXT: Final = 4096
"""Tokens of context of a model that does not say what it was trained for."""

_MIB = 1 << 20
_BITS: Final[Mapping[str, int | None]] = {"f16": None, "bf16": None, "f32": None, "q8_0": 8, "q4_0": 4}


@dataclass(frozen=True)
class Said:
    """The options that count, as launch options are called; None: nobody has said it.

    cache_type_k, cache_type_v: mean bits; f16, bf16 and f32 are all the type of the activations. cache_ram: MiB.
    """

    ctx_size: int | None = None
    parallel: int | None = None
    ubatch_size: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    cache_ram: int | None = None


def check(said: Said) -> None:
    """Raise InvalidRequest for values that mean nothing to any model."""
    if said.cache_ram is not None and said.cache_ram < 0:
        raise InvalidRequest("The prompt cache of MLX needs a bound. Name its MiB; 0: none.", param="cache_ram")
    keys, values = said.cache_type_k or "f16", said.cache_type_v or "f16"
    if keys not in _BITS or _BITS[keys] != _BITS.get(values, 0):
        raise InvalidRequest("A cache of MLX is f16, q8_0 or q4_0, keys and values alike.", param="cache_type_k")


def settings_of(facts: MlxFacts, said: Said, *, fused: bool = FUSED) -> MlxSettings:
    """Return the settings for a model.

    Raises InvalidRequest for a value that means nothing here, EstimateRefused where mlx-lm could not run it so.
    """
    check(said)
    return MlxSettings(
        context=said.ctx_size or facts.n_ctx_train or CONTEXT,
        sequences=said.parallel or 1,
        kv_bits=_kv_bits(facts, said.cache_type_k or "f16"),
        prefill_step=said.ubatch_size or MlxSettings.prefill_step,
        prompt_cache_bytes=None if said.cache_ram is None else said.cache_ram * _MIB,
        fused=fused,
    )


def _kv_bits(facts: MlxFacts, cache_type: str) -> int | None:
    bits = _BITS[cache_type]
    if bits and not facts.quantisable:
        raise EstimateRefused(
            "kv_bits_not_supported",
            f"mlx-lm cannot quantise the cache of '{facts.model_type}' ({', '.join(facts.kinds) or 'none'}): only full "
            "attention with heads of a multiple of 64 can be. Leave the cache type out.",
        )
    return bits
