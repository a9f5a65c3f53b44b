"""Make what draws the tokens of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import mlx.core as mx
from mlx_lm import sample_utils

from .asked import Sampling
from .work import Processor, Sampler


def sampler_of(asked: Sampling, special: Sequence[int], n_vocab: int) -> Sampler:
    """Return what draws a token from log-probabilities. special: tokens that xtc leaves alone."""
    asked = replace(asked, top_k=asked.top_k if asked.top_k < n_vocab else 0)  # mlx-lm fails with more
    if asked.temperature == 0:
        return cast(Sampler, sample_utils.make_sampler(temp=0.0))
    if asked.seed is not None:
        return _Seeded(asked, special)
    made = sample_utils.make_sampler(
        temp=asked.temperature,
        top_p=asked.top_p,
        min_p=asked.min_p,
        top_k=asked.top_k,
        xtc_probability=asked.xtc_probability,
        xtc_threshold=asked.xtc_threshold,
        xtc_special_tokens=list(special),
    )
    return cast(Sampler, made)


def processors_of(asked: Sampling) -> list[Processor]:
    """Return what changes logits before a token is drawn."""
    window = asked.repeat_last_n
    return list(
        sample_utils.make_logits_processors(
            logit_bias=dict(asked.logit_bias) or None,
            repetition_penalty=asked.repeat_penalty if asked.repeat_penalty != 1 and window else None,
            repetition_context_size=window,
            presence_penalty=asked.presence_penalty if window else None,
            presence_context_size=window,
            frequency_penalty=asked.frequency_penalty if window else None,
            frequency_context_size=window,
        )
    )


class _Seeded:
    """Draws by a seed of its own: others beside it change nothing, and mlx-lm need not answer alone."""

    def __init__(self, asked: Sampling, special: Sequence[int]) -> None:
        self._scale = 1 / asked.temperature
        self._key = mx.random.key(asked.seed)
        self._ways: list[Any] = []
        if 0 < asked.top_p < 1:
            self._ways.append(partial(sample_utils.apply_top_p, top_p=asked.top_p))
        if asked.min_p:
            self._ways.append(partial(sample_utils.apply_min_p, min_p=asked.min_p))
        if asked.xtc_probability:
            self._ways.append(partial(_without_top, asked=asked, special=list(special)))
        if asked.top_k:
            self._ways.append(partial(sample_utils.apply_top_k, top_k=asked.top_k))

    def __call__(self, logprobs: Any) -> Any:
        for way in self._ways:
            logprobs = way(logprobs)
        self._key, key = mx.random.split(self._key)
        return mx.random.categorical(logprobs * self._scale, key=key)


def _without_top(logprobs: Any, asked: Sampling, special: list[int]) -> Any:
    return sample_utils.apply_xtc(logprobs, asked.xtc_probability, asked.xtc_threshold, special)
