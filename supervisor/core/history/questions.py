"""Questions about requests that have ended: which ones, and what they come to in sum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, Final

MOST_ROWS: Final = 1000
"""Records in one answer."""

MOST_SUMMED: Final = 20_000
"""Records that one summary looks at: the newest."""

MOST_BUCKETS: Final = 500

_LEAST_S: Final = 1e-9  # of a time that is empty


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requests that are asked for; None: any.

    Attributes:
        since, until: of the arrival, seconds since 1970; `until` is not among them.
        before: the `id` of a record; only older ones.
    """

    model: str | None = None
    key: str | None = None
    path: str | None = None
    status: int | None = None
    code: str | None = None
    since: float | None = None
    until: float | None = None
    before: int | None = None

    def conditions(self) -> tuple[str, list[object]]:
        """Return the WHERE of a SELECT, empty for all, and its values."""
        given = [(_CONDITIONS[one.name], getattr(self, one.name)) for one in fields(self)]
        kept = [(text, value) for text, value in given if value is not None]
        where = " WHERE " + " AND ".join(text for text, _ in kept) if kept else ""
        return where, [value for _, value in kept]


_CONDITIONS: Final = {
    "model": "model = ?",
    "key": "key = ?",
    "path": "path = ?",
    "status": "status = ?",
    "code": "code = ?",
    "since": "at >= ?",
    "until": "at < ?",
    "before": "id < ?",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """What a summary looks at of a request; its fields are those of `Finished` and `Spent`."""

    at: float
    model: str | None
    code: str | None
    seconds: float
    queued: float | None
    first: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    predicted_ms: float | None


def summary(samples: Sequence[Sample], since: float, until: float, buckets: int) -> dict[str, Any]:
    """Return what the requests come to: in all, by model, and over time.

    buckets: the parts of the time from `since` to `until`, all equally long. The tokens of an answer are in those in
    which it was written, everything else in that in which the request arrived.
    """
    models: dict[str, list[Sample]] = {}
    for one in samples:
        if one.model is not None:
            models.setdefault(one.model, []).append(one)
    return {
        "since": since,
        "until": until,
        "all": _sums(samples),
        "models": {model: _sums(models[model]) for model in sorted(models)},
        "over_time": _over_time(samples, since, until, buckets),
    }


def _over_time(samples: Sequence[Sample], since: float, until: float, buckets: int) -> dict[str, Any]:
    width = max(until - since, _LEAST_S) / buckets
    parts: list[list[Sample]] = [[] for _ in range(buckets)]
    for one in samples:
        if since <= one.at < until:
            parts[min(int((one.at - since) / width), buckets - 1)].append(one)
    return {
        "bucket_seconds": width,
        "requests": [len(part) for part in parts],
        "errors": [sum(one.code is not None for one in part) for part in parts],
        "prompt_tokens": [sum(one.prompt_tokens or 0 for one in part) for part in parts],
        "completion_tokens": _written(samples, since, width, buckets),
    }


def _written(samples: Iterable[Sample], since: float, width: float, buckets: int) -> list[int]:
    """Return the tokens of answers in each part of the time; an answer comes evenly from its first token to its end."""
    found = [0.0] * buckets
    for one in filter(attrgetter("completion_tokens"), samples):
        begin, end = ((one.at + moment - since) / width for moment in (one.first or 0.0, one.seconds))
        end = max(end, begin + _LEAST_S)
        for part in range(max(int(begin), 0), min(int(end) + 1, buckets)):
            share = (min(end, part + 1) - max(begin, part)) / (end - begin)
            found[part] += (one.completion_tokens or 0) * max(share, 0.0)
    sums = [round(value) for value in accumulate(found, initial=0.0)]
    return [after - before for before, after in pairwise(sums)]


def _sums(samples: Sequence[Sample]) -> dict[str, Any]:
    speeds = [
        one.completion_tokens / one.predicted_ms * 1000 for one in samples if one.completion_tokens and one.predicted_ms
    ]
    return {
        "requests": len(samples),
        "errors": sum(one.code is not None for one in samples),
        "prompt_tokens": sum(one.prompt_tokens or 0 for one in samples),
        "cached_tokens": sum(one.cached_tokens or 0 for one in samples),
        "completion_tokens": sum(one.completion_tokens or 0 for one in samples),
        "seconds": percentiles(one.seconds for one in samples),
        "queued": percentiles(one.queued for one in samples if one.queued is not None),
        "first": percentiles(one.first for one in samples if one.first is not None),
        "tokens_per_second": percentiles(speeds),
    }


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """Return p50, p90 and p99, each one of the values (nearest rank); None where there are none."""
    ranked = sorted(values)
    if not ranked:
        return None
    return {f"p{percent}": ranked[-(-percent * len(ranked) // 100) - 1] for percent in _PERCENTS}


_PERCENTS: Final = (50, 90, 99)
