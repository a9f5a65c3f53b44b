"""Estimates of models for MLX, for people who name options as for llama-server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, ValidationError

from supervisor.config.base import Mebibytes, Slots, SomeTokens, Strict, Tokens
from supervisor.core.mlx.describe import estimate_json
from supervisor.core.mlx.facts import MlxFacts
from supervisor.core.mlx.memory import MlxSettings, estimate
from supervisor.errors import EstimateRefused, InvalidRequest

FUSED: Final = sys.platform == "darwin"
"""Attention needs no matrix of scores on Metal."""

_MOST_CONTEXTS = 64
_CONTEXT = 4096  # of a model that does not say what it was trained for
_MIB = 1 << 20
_BITS: Final[Mapping[str, int | None]] = {"f16": None, "bf16": None, "f32": None, "q8_0": 8, "q4_0": 4}


class MlxGiven(Strict):
    """The options that count for MLX; a cache type means its bits, and f16 the type of the activations."""

    ctx_size: Tokens | None = None
    parallel: Slots | None = None
    ubatch_size: SomeTokens = MlxSettings.prefill_step
    cache_type_k: str = Field(default="f16", max_length=16)
    cache_type_v: str = Field(default="f16", max_length=16)
    cache_ram: Mebibytes = 0


def mlx_settings(facts: MlxFacts, given: Mapping[str, Any], *, fused: bool) -> MlxSettings:
    """Return the settings for options by llama-server's names with underscores.

    Raises InvalidRequest for an option that means nothing here or a wrong value, EstimateRefused where mlx-lm could
    not run the model so.
    """
    unknown = sorted(given.keys() - MlxGiven.model_fields.keys())
    if unknown:
        known = ", ".join(sorted(MlxGiven.model_fields))
        message = f"`{unknown[0]}` means nothing to a model for MLX. Leave it out. Known: {known}."
        raise InvalidRequest(message, param=unknown[0])
    try:
        found = MlxGiven.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise InvalidRequest(f"{name} cannot be {str(given.get(name))[:100]!r}: {first['msg']}.", param=name) from None
    return MlxSettings(
        context=found.ctx_size or facts.n_ctx_train or _CONTEXT,
        sequences=found.parallel or 1,
        kv_bits=_kv_bits(facts, found),
        prefill_step=found.ubatch_size,
        prompt_cache_bytes=found.cache_ram * _MIB,
        fused=fused,
    )


def mlx_estimates_json(
    facts: MlxFacts, given: Mapping[str, Any], *, fused: bool
) -> dict[str, object] | list[dict[str, object]]:
    """Return the object of `estimate --json`; a list where `ctx_size` is one. Raises as `mlx_settings`."""
    contexts = given.get("ctx_size")
    asked = contexts if isinstance(contexts, list) else [contexts]
    if not 0 < len(asked) <= _MOST_CONTEXTS:
        raise InvalidRequest(f"ctx_size: name 1 to {_MOST_CONTEXTS} contexts.", param="ctx_size")
    found = []
    for context in asked:
        settings = mlx_settings(facts, {**given, "ctx_size": context}, fused=fused)
        found.append(estimate_json(facts, settings, estimate(facts, settings)))
    return found if isinstance(contexts, list) else found[0]


def _kv_bits(facts: MlxFacts, given: MlxGiven) -> int | None:
    if given.cache_type_k not in _BITS or _BITS[given.cache_type_k] != _BITS.get(given.cache_type_v, 0):
        raise InvalidRequest("A cache of MLX is f16, q8_0 or q4_0, keys and values alike.", param="cache_type_k")
    bits = _BITS[given.cache_type_k]
    if bits and not facts.quantisable:
        raise EstimateRefused(
            "kv_bits_not_supported",
            f"mlx-lm cannot quantise the cache of '{facts.model_type}' ({', '.join(facts.kinds) or 'none'}): only full "
            "attention with heads of a multiple of 64 can be. Leave the cache type out.",
        )
    return bits
