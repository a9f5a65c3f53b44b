"""What `/api/v1/history` answers, for the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HistoryRow:
    """A request that has ended; times are seconds, of `at` since 1970, and null where there was no such moment.

    Attributes:
        path: the row of the table of paths.
        status: 499 if the client left. code: of the error.
        queued, first: until it had an engine, until the first token.
        prompt_tokens: those from the cache among them.
        prompt_ms, predicted_ms: the engine's time for the prompt's other tokens, and for the answer's.
        finish: why the answer ended, in its API's word.
    """

    id: int
    at: float
    request_id: str
    path: str
    model: str | None
    key: str | None
    client: str
    stream: bool
    status: int
    code: str | None
    seconds: float
    queued: float | None
    first: float | None
    calls: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    prompt_ms: float | None
    predicted_ms: float | None
    finish: str | None
    prompt_tokens_per_second: float | None
    tokens_per_second: float | None


@dataclass(frozen=True)
class HistoryPage:
    """Some requests that have ended; `next`: for `before`, null on the last page."""

    requests: Sequence[HistoryRow]
    next: int | None


@dataclass(frozen=True)
class Percentiles:
    """Values that so many percent of all do not exceed."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class HistorySums:
    """What requests come to."""

    requests: int
    errors: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: Percentiles | None
    queued: Percentiles | None
    first: Percentiles | None
    tokens_per_second: Percentiles | None


@dataclass(frozen=True)
class HistoryOverTime:
    """The same for parts of the time, all equally long, the oldest first."""

    bucket_seconds: float
    requests: Sequence[int]
    errors: Sequence[int]
    prompt_tokens: Sequence[int]
    completion_tokens: Sequence[int]


@dataclass(frozen=True)
class HistorySummary:
    """What requests come to: in all, by model, and over time."""

    since: float
    until: float
    all: HistorySums
    models: Mapping[str, HistorySums]
    over_time: HistoryOverTime


@dataclass(frozen=True)
class LoadRow:
    """Something that happened to an engine. `seconds`: until it was ready. `code`, `reason`: of a failure."""

    id: int
    at: float
    model: str
    engine: int
    event: str
    seconds: float | None
    code: str | None
    reason: str | None


@dataclass(frozen=True)
class LoadPage:
    """Some of them; `next`: for `before`, null on the last page."""

    loads: Sequence[LoadRow]
    next: int | None


@dataclass(frozen=True)
class Forgotten:
    """How many requests are forgotten."""

    requests: int
