"""Estimates of models for MLX, for people who name options as for llama-server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from supervisor.config.base import Mebibytes, Slots, SomeTokens, Strict, Tokens
from supervisor.core.mlx.describe import estimate_json
from supervisor.core.mlx.facts import MlxFacts
from supervisor.core.mlx.memory import MlxSettings, estimate
from supervisor.core.mlx.settings import Said, settings_of
from supervisor.errors import InvalidRequest

_MOST_CONTEXTS = 64


class MlxGiven(Strict):
    """The options that count for MLX; a cache type means its bits, and f16 the type of the activations."""

    ctx_size: Tokens | None = None
    parallel: Slots | None = None
    ubatch_size: SomeTokens | None = None
    cache_type_k: str = Field(default="f16", max_length=16)
    cache_type_v: str = Field(default="f16", max_length=16)
    cache_ram: Mebibytes | None = None


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
    return settings_of(facts, Said(**found.model_dump()), fused=fused)


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
