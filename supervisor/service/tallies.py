"""Count what ends: requests, and what happens to engines."""

from __future__ import annotations

from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from supervisor.core.history import metrics
from supervisor.core.history.metrics import COUNTED, Metric
from supervisor.core.history.records import Finished, LoadRecord

UNKNOWN: Final = "-"
"""The label of a request whose model is not known."""

OTHER: Final = "other"
"""The label in place of models and codes that are too many: whoever may load files by path could make up any number."""

MOST_NAMES: Final = 1000
"""Models, and codes, that have labels of their own until the daemon ends."""


class Tallies:
    """The metrics that are counted as things happen.

    Attributes:
        registry: in which they are.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made = {one.name: _made(one, self.registry) for one in COUNTED}
        self._models, self._codes = _Names(), _Names()

    def count(self, one: Finished) -> None:
        """Count a request that has ended."""
        model, spent = self._models.label(one.model or UNKNOWN), one.spent
        self._add(metrics.REQUESTS, (model, one.path, str(one.status)))
        if one.code is not None:
            self._add(metrics.ERRORS, (model, self._codes.label(one.code)))
        per_token = spent.tokens_per_second
        for metric, figure in (
            (metrics.PROMPT_TOKENS, spent.prompt_tokens),
            (metrics.CACHED_TOKENS, spent.cached_tokens),
            (metrics.COMPLETION_TOKENS, spent.completion_tokens),
            (metrics.PROMPT_SECONDS, _seconds(spent.prompt_ms)),
            (metrics.PREDICTED_SECONDS, _seconds(spent.predicted_ms)),
        ):
            if figure:
                self._add(metric, (model,), figure)
        for metric, seconds in (
            (metrics.REQUEST_SECONDS, one.seconds),
            (metrics.QUEUE_SECONDS, one.queued),
            (metrics.FIRST_TOKEN_SECONDS, one.first),
            (metrics.TOKEN_SECONDS, 1 / per_token if per_token else None),
        ):
            if seconds is not None:
                self._observe(metric, model, seconds)

    def count_load(self, one: LoadRecord) -> None:
        """Count what happened to an engine."""
        model = self._models.label(one.model)
        self._add(metrics.ENGINE_EVENTS, (model, one.event))
        if one.code is not None:
            self._add(metrics.ENGINE_FAILURES, (model, self._codes.label(one.code)))
        if one.seconds is not None:
            self._observe(metrics.LOAD_SECONDS, model, one.seconds)

    def _add(self, metric: Metric, labels: tuple[str, ...], amount: float = 1) -> None:
        self._made[metric.name].labels(*labels).inc(amount)

    def _observe(self, metric: Metric, model: str, seconds: float) -> None:
        self._made[metric.name].labels(model).observe(seconds)


class _Names:
    """The names that have labels of their own: as many as there may be, the first ones."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name, or OTHER."""
        if name not in self._known:
            if len(self._known) >= MOST_NAMES:
                return OTHER
            self._known.add(name)
        return name


class _Made(Protocol):
    def labels(self, *values: str) -> Any:
        """Return the one of these labels."""


def _made(metric: Metric, registry: CollectorRegistry) -> _Made:
    name = metrics.PREFIX + metric.name
    if metric.kind == "histogram":
        return Histogram(name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)
    kind = Counter if metric.kind == "counter" else Gauge
    return kind(name, metric.help, metric.labels, registry=registry)


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
