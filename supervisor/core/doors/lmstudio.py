"""Requests of LM Studio's `/api/v0`: OpenAI's, with `ttl`, answered with `stats` besides.

Read from LM Studio's documentation of its REST API (v0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from supervisor.core.doors.durations import keep_alive
from supervisor.core.doors.turned import Changed, Head, Spoken, Telling, Turned, Wishes
from supervisor.core.recovery.typed import Chunk
from supervisor.core.recovery.voices import ChatVoice
from supervisor.errors import InvalidRequest

_TTL: Final = "ttl"
_REASONS: Final = {"length": "maxPredictedTokensReached", "tool_calls": "toolCalls"}


class StatsVoice(ChatVoice):
    """Chunks of a chat as they are, but that the one with the engine's measurements has `stats`."""

    verbatim = False

    def __init__(self, telling: Telling) -> None:
        self._reason: str | None = None

    def chunk(self, chunk: Chunk) -> bytes:
        """Return one event; none for a report on the prompt."""
        for choice in chunk.get("choices") or ():
            self._reason = choice.get("finish_reason") or self._reason
        if "prompt_progress" in chunk:
            return b""
        timings = chunk.get("timings")
        return super().chunk(chunk if timings is None else _with_stats(chunk, self._reason, timings))

    def whole(self, answer: Chunk) -> Mapping[str, object]:
        """Return the answer with its stats."""
        return with_stats(answer, None)


def with_stats(answer: Mapping[str, Any], telling: Telling | None) -> Mapping[str, object]:
    """Return a whole answer with `stats`, where the engine measured it."""
    choices = answer.get("choices")
    reason = choices[0].get("finish_reason") if choices else None
    timings = answer.get("timings")
    return answer if not timings else {**answer, "stats": stats(reason, timings)}


def stats(reason: str | None, timings: Mapping[str, Any]) -> dict[str, object]:
    """Return LM Studio's figures: tokens a second, and seconds."""
    return {
        "tokens_per_second": timings.get("predicted_per_second"),
        "time_to_first_token": _seconds(timings, "prompt_ms"),
        "generation_time": _seconds(timings, "predicted_ms"),
        "stop_reason": _REASONS.get(reason or "", "eosFound"),
    }


def chat(asked: Mapping[str, Any], head: Head) -> Turned:
    """Turn a request to `/api/v0/chat/completions`. Raise InvalidRequest."""
    return _turned("/v1/chat/completions", asked, Spoken(StatsVoice))


def completion(asked: Mapping[str, Any], head: Head) -> Turned:
    """Turn a request to `/api/v0/completions`; a stream of it has no stats. Raise InvalidRequest."""
    return _turned("/v1/completions", asked, Changed(with_stats))


def embeddings(asked: Mapping[str, Any], head: Head) -> Turned:
    """Turn a request to `/api/v0/embeddings`. Raise InvalidRequest."""
    return _turned("/v1/embeddings", asked, Changed(lambda answer, telling: answer))


def _turned(path: str, asked: Mapping[str, Any], answer: Spoken | Changed) -> Turned:
    fields = {name: value for name, value in asked.items() if name != _TTL}
    return Turned(path, fields, asked.get("model"), answer, Wishes(_ttl(asked.get(_TTL))))


def _ttl(value: object) -> float | None:
    if isinstance(value, str) or value == 0:
        raise InvalidRequest("`ttl` must be a number of seconds above 0.", param=_TTL)
    return keep_alive(value)


def _seconds(timings: Mapping[str, Any], name: str) -> float | None:
    value = timings.get(name)
    return value / 1000 if isinstance(value, int | float) else None


def _with_stats(chunk: Chunk, reason: str | None, timings: Mapping[str, Any]) -> Chunk:
    return {**chunk, "stats": stats(reason, timings)}  # type: ignore[typeddict-unknown-key] # LM Studio's own
