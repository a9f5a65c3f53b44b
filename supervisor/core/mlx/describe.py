"""Describe a model for MLX as plain values, under the keys of a model in GGUF where they mean the same."""

from __future__ import annotations

from supervisor.core.mlx.caches import CacheKind
from supervisor.core.mlx.facts import MlxFacts
from supervisor.core.mlx.memory import MlxMemory, MlxSettings, cache_bytes

_UNKNOWN = "mlx-lm caches this type in a way that is not known here: all layers are counted as full attention"
_CODE = "config.json names a Python file of the model's own (`model_file`), which is never run: it cannot be loaded"


def describe(facts: MlxFacts) -> dict[str, object]:
    """Return the facts; sizes in bytes, lengths in tokens. Keys without a value are left out."""
    counts = facts.kinds
    windows = {one.window for one in facts.caches if one.kind is CacheKind.SLIDING}
    found: dict[str, object] = {
        "format": "mlx",
        "arch": facts.model_type,
        "arch_known": facts.known,
        "kind": "model",
        "tensor_bytes": facts.weights_bytes,
        "dropped_bytes": facts.dropped_bytes or None,
        "bits": facts.quantisation or None,
        "n_ctx_train": facts.n_ctx_train or None,
        "n_vocab": facts.n_vocab or None,
        "n_embd": facts.n_embd or None,
        "n_layer": facts.n_layer,
        "n_head": facts.n_head or None,
        "window": max(windows, default=None),
        "swa_layers": counts.get("sliding"),
        "recurrent_layers": counts.get("recurrent"),
        "kv_layers": len(facts.caches) - counts.get("recurrent", 0),
        "caches": counts,
        "chat_template": facts.chat_template,
        "notes": list(notes(facts)) or None,
        "tensor_types": dict(facts.tensor_types) or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def notes(facts: MlxFacts) -> tuple[str, ...]:
    """Return what the figures do not say by themselves."""
    return (*([] if facts.known else [_UNKNOWN]), *([_CODE] if facts.custom_code else []))


def estimate_json(facts: MlxFacts, settings: MlxSettings, found: MlxMemory) -> dict[str, object]:
    """Return the object of `estimate --json`."""
    states = settings.sequences * cache_bytes(facts.only(CacheKind.RECURRENT), settings)
    return {
        "arch": facts.model_type,
        "format": "mlx",
        "n_ctx": settings.context * settings.sequences,
        "n_ctx_seq": settings.context,
        "n_seq": settings.sequences,
        "weights_bytes": found.weights,
        "kv_bytes": found.cache - states,
        "recurrent_bytes": states,
        "compute_bytes": found.compute,
        "prompt_cache_bytes": found.prompt_cache,
        "base_bytes": found.base,
        "total_bytes": found.total,
        "notes": list(notes(facts)),
    }
