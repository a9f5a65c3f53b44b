"""The answers about models for MLX, as the schema has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MlxEstimate:
    """What mlx-lm would allocate for a model in safetensors."""

    arch: str
    format: str
    n_ctx: int
    n_ctx_seq: int
    n_seq: int
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int
    prompt_cache_bytes: int
    base_bytes: int
    total_bytes: int
    notes: Sequence[str]
