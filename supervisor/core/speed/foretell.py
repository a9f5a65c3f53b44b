"""Say how fast a model will be at a place: tokens per second at several depths, and how soon the first one comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.core.memory import EstimateOptions
from supervisor.core.spec import ModelSpec
from supervisor.core.speed.machine import MachineSpeed, Source
from supervisor.core.speed.work import decode_work, prefill_work

DEPTHS = (0, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
PROMPT = 4096


@dataclass(frozen=True, slots=True)
class Correction:
    """What the requests that a model answered teach: measured over foretold seconds, of prompts and of tokens."""

    prefill: float = 1.0
    decode: float = 1.0
    learned: bool = False


@dataclass(frozen=True, slots=True)
class Speed:
    """A model's speed alone on its devices, foretold.

    Attributes:
        prompt_tokens: of the prompt that the two figures beside it are of.
        first_token_seconds: from such a prompt to its first token.
        decode_tokens_per_second: by tokens before.
    """

    prompt_tokens: int
    prefill_tokens_per_second: float
    first_token_seconds: float
    decode_tokens_per_second: Mapping[int, float]
    source: Source

    def to_json(self) -> dict[str, object]:
        """Return the `speed` of `plan --json`: figures of four digits, `from` for the source."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "prefill_tokens_per_second": _rounded(self.prefill_tokens_per_second),
            "first_token_seconds": _rounded(self.first_token_seconds),
            "decode_tokens_per_second": {
                str(depth): _rounded(value) for depth, value in self.decode_tokens_per_second.items()
            },
            "from": self.source,
        }


def foretell(
    spec: ModelSpec,
    options: EstimateOptions,
    machine: MachineSpeed,
    context: int,
    correction: Correction = Correction(),
) -> Speed | None:
    """Return the speed of a model within its context; None where nothing is known of the devices that it needs."""
    prompt = max(1, min(PROMPT, context - 1))
    work = prefill_work(spec, options, prompt)
    prefill = machine.seconds(work) * correction.prefill
    depths = [depth for depth in DEPTHS if depth < context]
    decode = {depth: decode_seconds(spec, options, machine, depth) * correction.decode for depth in depths}
    if prefill <= 0 or any(seconds <= 0 for seconds in decode.values()):
        return None
    source: Source = "learned" if correction.learned else machine.source(decode_work(spec, options, 0))
    return Speed(
        prompt,
        prompt / prefill,
        prefill + decode[0],
        {depth: 1 / seconds for depth, seconds in decode.items()},
        source,
    )


def decode_seconds(spec: ModelSpec, options: EstimateOptions, machine: MachineSpeed, depth: int) -> float:
    """Return the foretold seconds of one token behind `depth` others."""
    return machine.seconds(decode_work(spec, options, depth, machine.threads))


def prefill_seconds(
    spec: ModelSpec, options: EstimateOptions, machine: MachineSpeed, tokens: int, depth: int = 0
) -> float:
    """Return the foretold seconds of a prompt."""
    return machine.seconds(prefill_work(spec, options, tokens, depth))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
