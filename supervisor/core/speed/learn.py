"""Correct what is foretold of a model by the requests that it answered here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervisor.core.history.records import Spent
from supervisor.core.memory import EstimateOptions
from supervisor.core.spec import ModelSpec
from supervisor.core.speed.foretell import Correction, decode_seconds, prefill_seconds
from supervisor.core.speed.machine import MachineSpeed

MOST = 20
"""Requests that are looked at: the newest."""

_ENOUGH = 3
_LEAST_PROMPT, _LEAST_ANSWER = 64, 8  # tokens: below them the time is mostly not theirs
_FARTHEST = 4.0  # times faster or slower: then the model was somewhere else at that time


def correction(
    spec: ModelSpec, options: EstimateOptions, machine: MachineSpeed, answered: Sequence[Spent]
) -> Correction:
    """Return measured over foretold seconds of the newest requests: of those answered fast; one where they are too few.

    Other work on the machine only ever makes a request slower, so the faster ones say what the model does alone. The
    very fastest may be a slip, so the figure is the lower quartile.

    Args:
        answered: newest first.
    """
    prefill = _undisturbed(list(_prompts(spec, options, machine, answered[:MOST])))
    decode = _undisturbed(list(_answers(spec, options, machine, answered[:MOST])))
    return Correction(prefill or 1.0, decode or 1.0, learned=decode is not None)


def _prompts(
    spec: ModelSpec, options: EstimateOptions, machine: MachineSpeed, answered: Sequence[Spent]
) -> Iterator[float]:
    for one in answered:
        cached = one.cached_tokens or 0
        read = (one.prompt_tokens or 0) - cached
        if read >= _LEAST_PROMPT and one.prompt_ms:
            yield one.prompt_ms / 1000 / (prefill_seconds(spec, options, machine, read, cached) or 1e9)


def _answers(
    spec: ModelSpec, options: EstimateOptions, machine: MachineSpeed, answered: Sequence[Spent]
) -> Iterator[float]:
    for one in answered:
        passes = (one.completion_tokens or 0) - 1  # the prompt makes the first token
        if passes >= _LEAST_ANSWER and one.predicted_ms:
            depth = (one.prompt_tokens or 0) + passes // 2
            yield one.predicted_ms / 1000 / passes / (decode_seconds(spec, options, machine, depth) or 1e9)


def _undisturbed(ratios: Sequence[float]) -> float | None:
    near = [ratio for ratio in ratios if 1 / _FARTHEST <= ratio <= _FARTHEST]
    return sorted(near)[len(near) // 4] if len(near) >= _ENOUGH else None
