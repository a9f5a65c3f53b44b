"""Count what ends, look at what is, and write both down for Prometheus. A scrape wakes no model and keeps none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from supervisor.core.devices import Device
from supervisor.core.history import metrics
from supervisor.core.history.metrics import METRICS, Metric
from supervisor.core.history.records import Finished, LoadRecord
from supervisor.proxy.counts import Counts
from supervisor.service.enginemetrics import EngineMetrics
from supervisor.service.status import ModelStatus

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
UNKNOWN: Final = "-"
"""The label of a request whose model is not known."""

_LAG_EVERY_S = 1.0

Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True)
class Looked:
    """What a scrape looks at; each a function that returns what is at the moment."""

    statuses: Callable[[], Iterable[ModelStatus]]
    devices: Callable[[], Iterable[Device]]
    calls: Callable[[], Mapping[str, Counts]]
    inflight: Callable[[], int]
    dropped: Callable[[], int]


class Metrics:
    """The metrics of one daemon, as the table of `core/history/metrics` has them."""

    def __init__(self, looked: Looked, engines: EngineMetrics) -> None:
        self._engines = engines
        self._registry = CollectorRegistry()
        self._made = {one.name: _made(one, self._registry) for one in METRICS if one not in _LOOKED_AT}
        self._lag = _Lag()
        self._registry.register(_Present(looked, self._lag, engines))
        ProcessCollector(registry=self._registry)

    def count(self, one: Finished) -> None:
        """Count a request that has ended."""
        model, spent = one.model or UNKNOWN, one.spent
        self._add(metrics.REQUESTS, (model, one.path, str(one.status)))
        if one.code is not None:
            self._add(metrics.ERRORS, (model, one.code))
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
        self._add(metrics.ENGINE_EVENTS, (one.model, one.event))
        if one.code is not None:
            self._add(metrics.ENGINE_FAILURES, (one.model, one.code))
        if one.seconds is not None:
            self._observe(metrics.LOAD_SECONDS, one.model, one.seconds)

    async def text(self) -> bytes:
        """Return the page."""
        await self._engines.look()
        text: bytes = generate_latest(self._registry)
        return text

    def start(self) -> None:
        """Begin to watch the loop."""
        self._lag.start()

    def close(self) -> None:
        """End what runs."""
        self._lag.close()
        self._engines.close()

    def _add(self, metric: Metric, labels: tuple[str, ...], amount: float = 1) -> None:
        self._made[metric.name].labels(*labels).inc(amount)

    def _observe(self, metric: Metric, model: str, seconds: float) -> None:
        self._made[metric.name].labels(model).observe(seconds)


class _Present(Collector):
    """What is at the moment of a scrape."""

    def __init__(self, looked: Looked, lag: _Lag, engines: EngineMetrics) -> None:
        self._looked = looked
        self._lag = lag
        self._engines = engines

    def collect(self) -> Iterator[Any]:
        """Yield a family for each metric that is looked at."""
        statuses = list(self._looked.statuses())
        rows = {
            metrics.MODEL_STATE: [((one.id, one.state), 1) for one in statuses],
            metrics.SLOTS: [((one.id,), one.n_slots) for one in statuses if one.n_slots],
            metrics.LEASES: [((one.id,), one.leases) for one in statuses],
            metrics.WAITING: [((one.id,), one.waiting) for one in statuses],
            metrics.RSS: [((one.id,), one.rss_bytes) for one in statuses if one.rss_bytes],
            metrics.MEMORY: [row for one in statuses for row in _memory(one)],
            metrics.DEVICE_TOTAL: [((one.name,), one.total_bytes) for one in self._looked.devices()],
            metrics.DEVICE_FREE: [((one.name,), one.free_bytes) for one in self._looked.devices()],
            metrics.TOOL_CALLS: list(_calls(self._looked.calls())),
            metrics.INFLIGHT: [((), self._looked.inflight())],
            metrics.HISTORY_DROPPED: [((), self._looked.dropped())],
            metrics.LOOP_LAG: [((), self._lag.take())],
        }
        for metric, values in rows.items():
            yield _family(metric, values)
        yield from self._engines.families()


_LOOKED_AT: Final = frozenset({
    *(metrics.MODEL_STATE, metrics.SLOTS, metrics.LEASES, metrics.WAITING, metrics.RSS, metrics.MEMORY),
    *(metrics.DEVICE_TOTAL, metrics.DEVICE_FREE, metrics.TOOL_CALLS, metrics.INFLIGHT, metrics.HISTORY_DROPPED),
    metrics.LOOP_LAG,
})


def _family(metric: Metric, rows: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    found: Family = kind(metrics.PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, figure in rows:
        found.add_metric(labels, figure)
    return found


def _memory(status: ModelStatus) -> Iterator[tuple[tuple[str, ...], float]]:
    planned = (status.plan or {}).get("used_bytes") or {}
    for kind, held in (("planned", planned), ("told", status.footprint or {})):
        for device, count in held.items():
            yield (status.id, device, kind), count


def _calls(counts: Mapping[str, Counts]) -> Iterator[tuple[tuple[str, ...], float]]:
    for model, one in counts.items():
        yield (model, "native"), one.native
        yield (model, "recovered"), one.recovered.total()
        yield (model, "repaired"), one.repaired.total()
        yield (model, "left_as_text"), one.left_as_text.total()


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


class _Lag:
    """The delays of the loop: how much later than asked it comes back, once a second."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_LAG_EVERY_S, self._come_back, loop, loop.time() + _LAG_EVERY_S)

    def take(self) -> float:
        """Return the longest delay since the last time, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def close(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _come_back(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._longest = max(self._longest, loop.time() - due)
        self.start()
