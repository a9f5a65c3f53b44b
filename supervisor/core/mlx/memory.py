"""The bytes that mlx-lm allocates for a model, by part.

Weights and caches are exact, by MLX's own figures (`nbytes` of parameters and caches). What a batch computes with is
bounded from above, and the process itself is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from supervisor.core.mlx.caches import CacheKind, LayerCache
from supervisor.core.mlx.facts import MlxFacts

STEP: Final = 256
"""Tokens by which a cache grows (`KVCache.step` of mlx-lm)."""
GROUP: Final = 64
"""Numbers that share a scale and a bias in a quantised cache."""
BASE_BYTES: Final = 100 << 20
"""What the process holds besides: the interpreter, MLX, and the tokenizer."""
_F32 = 4


@dataclass(frozen=True)
class MlxSettings:
    """How a model is run.

    Attributes:
        context: tokens of one sequence.
        sequences: those that are computed together; a batch is as long as its longest.
        kv_bits: of a number in a quantised cache, 8 or 4; None: as the activations are.
        prefill_step: tokens of a prompt that are read at once.
        prompt_cache_bytes: the bound on the caches that are kept after their requests; None: those of one sequence.
        fused: attention without a matrix of scores, as on Metal; the CPU has one.
    """

    context: int
    sequences: int = 1
    kv_bits: int | None = None
    prefill_step: int = 512
    prompt_cache_bytes: int | None = 0
    fused: bool = False


@dataclass(frozen=True)
class MlxMemory:
    """Bytes of each part."""

    weights: int
    cache: int
    prompt_cache: int
    compute: int
    base: int = BASE_BYTES

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.prompt_cache + self.compute + self.base


def estimate(facts: MlxFacts, settings: MlxSettings) -> MlxMemory:
    """Return the bytes of a model run in this way, when all its sequences are as long as they may be."""
    return MlxMemory(
        weights=facts.weights_bytes,
        cache=settings.sequences * cache_bytes(facts, settings),
        prompt_cache=kept_bytes(facts, settings),
        compute=_compute_bytes(facts, settings),
    )


def kept_bytes(facts: MlxFacts, settings: MlxSettings) -> int:
    """Return the bound on the caches that are kept after their requests."""
    given = settings.prompt_cache_bytes
    return cache_bytes(facts, settings) if given is None else given


def cache_bytes(facts: MlxFacts, settings: MlxSettings) -> int:
    """Return the most that the caches of one sequence hold until it is as long as the context."""
    return sum(_held(one, facts.dtype_bytes, settings) for one in facts.caches)


def _held(one: LayerCache, width: int, settings: MlxSettings) -> int:
    if one.kind is CacheKind.RECURRENT:
        return one.state * width + one.state_f32 * _F32
    tokens = -(-settings.context // STEP) * STEP
    if one.kind is CacheKind.SLIDING:
        # while a prompt is read, a step comes on top of the window without its last token
        step = min(settings.prefill_step, settings.context)
        return (one.keys + one.values) * min(tokens, max(one.window + step - 1, one.window)) * width
    if settings.kv_bits is None:
        return (one.keys + one.values) * tokens * width
    return sum(tokens * _quantised(numbers, settings.kv_bits, width) for numbers in (one.keys, one.values))


def _quantised(numbers: int, bits: int, width: int) -> int:
    """Return the bytes of a token's numbers: packed, with a scale and a bias for each group."""
    return numbers * bits // 8 + 2 * width * (numbers // GROUP)


def _compute_bytes(facts: MlxFacts, settings: MlxSettings) -> int:
    """Return a bound on what a step computes with: a layer's activations, scores of attention, and logits."""
    step = min(settings.prefill_step, settings.context)
    activations = step * (8 * facts.n_embd + 3 * facts.n_ff) * facts.dtype_bytes
    attends = any(one.kind is not CacheKind.RECURRENT for one in facts.caches)
    scores = 0 if settings.fused or not attends else 2 * facts.n_head * step * settings.context * facts.dtype_bytes
    logits = 2 * settings.sequences * facts.n_vocab * _F32
    return activations + scores + logits


def max_context(facts: MlxFacts, settings: MlxSettings, available: int) -> int:
    """Return the longest context, in tokens by 256, with which the model holds at most `available` bytes; 0 for none.

    No longer than the model was trained for, where it says so.
    """

    def fits(steps: int) -> bool:
        return estimate(facts, replace(settings, context=steps * STEP)).total <= available

    low, high = 0, (facts.n_ctx_train or 1 << 20) // STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low * STEP
