"""Read what a request asks for. Whatever cannot be done is refused by the name of its field, and never ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MOST_STOPS: Final = 64
"""Stop strings of a request."""

_LONGEST_STOP = 1024  # characters
_MOST_BIASES = 1024
_WINDOW = 64  # tokens that penalties look back to, as with llama-server

_NOT_HERE: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("grammar", "json_schema", "lora", "adapters", "draft_model", "model_draft"), (None, "", [], {})),
    **dict.fromkeys(("logprobs", "n_probs", "top_logprobs", "echo", "ignore_eos"), (None, False, 0)),
    **dict.fromkeys(("n", "best_of"), (None, 1)),
    **dict.fromkeys(("typical_p", "top_n_sigma"), (None, 1, 1.0, -1, -1.0)),
    **dict.fromkeys(("mirostat", "dry_multiplier", "dynatemp_range", "n_indent", "t_max_predict_ms"), (None, 0, 0.0)),
    **dict.fromkeys(("suffix", "input_prefix", "input_suffix", "input_extra"), (None, "", [])),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "auto", "none"),
    "min_tokens": (None, 0),
    "parallel_tool_calls": (None, True, False),
}
"""Fields that mlx-lm has nothing for, each with the values that ask for nothing."""


class Refused(Exception):
    """A request that is not answered. status: of HTTP; kind: `type` of the error; more: further members of it."""

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error", **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": status, "message": message, "type": kind, **more}}


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, by llama-server's names; its defaults."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = _WINDOW
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A request, apart from its prompt.

    Attributes:
        most: tokens to write; None: as many as there is room for.
        stops: texts that end the answer, and are no part of it.
        thoughts: they are told apart from the answer.
    """

    sampling: Sampling
    most: int | None
    stops: tuple[str, ...]
    stream: bool
    with_usage: bool
    with_progress: bool
    thoughts: bool
    model: str


def asked_of(body: Mapping[str, Any], defaults: Sampling, name: str) -> Asked:
    """Return what a request asks for. Raise Refused for what cannot be done, or cannot be meant."""
    for wanted, nothing in _NOT_HERE.items():
        value = body.get(wanted)
        if value not in nothing:
            raise Refused(
                f"`{wanted}` cannot be had with mlx-lm. Leave it out, or take a model in GGUF.",
                501,
                "not_supported_error",
                param=wanted,
            )
    options = body.get("stream_options")
    most = next(
        (body[key] for key in ("max_completion_tokens", "max_tokens", "n_predict") if body.get(key) is not None), -1
    )
    limit = _whole({"max_tokens": most}, "max_tokens", -1, 1 << 31, -1)
    return Asked(
        sampling=_sampling(body, defaults),
        most=None if limit < 0 else limit,
        stops=_stops(body.get("stop")),
        stream=bool(body.get("stream")),
        with_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
        with_progress=bool(body.get("return_progress")),
        thoughts=body.get("reasoning_format") != "none",
        model=name,
    )


def _sampling(body: Mapping[str, Any], given: Sampling) -> Sampling:
    seed = _whole(body, "seed", -1, (1 << 64) - 1, -1)
    last = _whole(body, "repeat_last_n", -1, 1 << 20, given.repeat_last_n)
    return Sampling(
        temperature=max(0.0, _number(body, "temperature", -1e6, 1e6, given.temperature)),
        top_k=max(0, _whole(body, "top_k", -1, 1 << 31, given.top_k)),
        top_p=_number(body, "top_p", 0, 1, given.top_p),
        min_p=_number(body, "min_p", 0, 1, given.min_p),
        xtc_probability=_number(body, "xtc_probability", 0, 1, given.xtc_probability),
        xtc_threshold=_number(body, "xtc_threshold", 0, 0.5, given.xtc_threshold),
        repeat_penalty=_number(body, "repeat_penalty", 0, 1e6, given.repeat_penalty),
        repeat_last_n=1 << 20 if last < 0 else last,
        presence_penalty=_number(body, "presence_penalty", -1e6, 1e6, given.presence_penalty),
        frequency_penalty=_number(body, "frequency_penalty", -1e6, 1e6, given.frequency_penalty),
        seed=None if seed < 0 else seed,
        logit_bias=_biases(body.get("logit_bias")),
    )


def _number(body: Mapping[str, Any], name: str, least: float, most: float, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Refused(f"`{name}` must be a number from {least} to {most}.", param=name)
    return float(value)


def _whole(body: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(f"`{name}` must be a whole number from {least} to {most}.", param=name)
    return value


def _stops(value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if value is not None and not isinstance(value, str | list):
        raise Refused("`stop` must be a text or a list of texts.", param="stop")
    if len(found) > MOST_STOPS or any(not isinstance(one, str) or len(one) > _LONGEST_STOP for one in found):
        raise Refused(f"`stop`: at most {MOST_STOPS} texts of at most {_LONGEST_STOP} characters.", param="stop")
    return tuple(one for one in found if isinstance(one, str) and one)


def _biases(value: object) -> dict[int, float]:
    """Return the biases of `{"TOKEN": BIAS}` or of `[[TOKEN, BIAS]]`; false for a bias forbids the token."""
    pairs: Sequence[Any] = (
        list(value.items()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    )
    if len(pairs) > _MOST_BIASES:
        raise Refused(f"`logit_bias`: at most {_MOST_BIASES} tokens.", param="logit_bias")
    try:
        return {int(token): float("-inf") if bias is False else float(bias) for token, bias in pairs}
    except (TypeError, ValueError):
        raise Refused("`logit_bias` must map ids of tokens to numbers.", param="logit_bias") from None
