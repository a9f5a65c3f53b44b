"""The page for Prometheus: what was counted, and what is at the moment. A scrape wakes no model and keeps none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from supervisor.core.devices import HOST, Machine
from supervisor.core.history import metrics
from supervisor.core.history.metrics import Metric
from supervisor.proxy.counts import Counts
from supervisor.service.clusters import ClusterFigures, NodeStatus
from supervisor.service.enginemetrics import EngineMetrics
from supervisor.service.status import ModelStatus
from supervisor.service.tallies import Tallies
from supervisor.system.shared import Shared

_LAG_EVERY_S = 1.0

Rows = Iterable[tuple[tuple[str, ...], float]]
Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True)
class Looked:
    """What a scrape looks at; each a function that returns what is at the moment.

    `machine`: as it was at the last look, if there was one. `cluster`: None where the daemon is in none.
    """

    statuses: Callable[[], Iterable[ModelStatus]]
    machine: Callable[[], Machine | None]
    calls: Callable[[], Mapping[str, Counts]]
    inflight: Callable[[], int]
    dropped: Callable[[], int]
    cluster: Callable[[], ClusterFigures | None]


class Metrics:
    """The metrics of one daemon, as the table of `core/history/metrics` has them."""

    def __init__(self, tallies: Tallies, looked: Looked, engines: EngineMetrics) -> None:
        self._engines = engines
        self._registry = tallies.registry
        self._lag = _Lag()
        self._looked = looked
        self._pages = Shared[bytes]()
        ProcessCollector(registry=self._registry)

    async def text(self) -> bytes:
        """Return the page."""
        return await self._pages.get(self._made)

    async def _made(self) -> bytes:
        """Look at what is, then write the page in a thread: one of many models would hold the loop up."""
        await self._engines.look()
        present = [*_present(self._looked, self._lag), *self._engines.families()]
        return await asyncio.to_thread(_written, _Page(self._registry, present))

    def start(self) -> None:
        """Begin to watch the loop."""
        self._lag.start()

    def close(self) -> None:
        """End what runs."""
        self._lag.close()
        self._engines.close()


class _Page(Collector):
    """What was counted, and what is at the moment of a scrape."""

    def __init__(self, counted: Collector, present: Iterable[Family]) -> None:
        self._counted = counted
        self._present = present

    def collect(self) -> Iterator[Any]:
        """Yield every family."""
        yield from self._counted.collect()
        yield from self._present


def _written(page: Collector) -> bytes:
    return generate_latest(page)  # type: ignore[no-any-return, no-untyped-call]  # the library has no types here


def _present(looked: Looked, lag: _Lag) -> Iterator[Family]:
    """Yield a family for each metric that is looked at."""
    statuses = list(looked.statuses())
    machine = looked.machine()
    devices = [] if machine is None else list(_devices(machine))
    rows: dict[Metric, Rows] = {
        metrics.MODEL_STATE: [((one.id, one.state), 1) for one in statuses],
        metrics.SLOTS: [((one.id,), one.n_slots) for one in statuses if one.n_slots],
        metrics.LEASES: [((one.id,), one.leases) for one in statuses],
        metrics.WAITING: [((one.id,), one.waiting) for one in statuses],
        metrics.RSS: [((one.id,), one.rss_bytes) for one in statuses if one.rss_bytes],
        metrics.MEMORY: [row for one in statuses for row in _memory(one)],
        metrics.DEVICE_TOTAL: [((name,), total) for name, total, _ in devices],
        metrics.DEVICE_FREE: [((name,), free) for name, _, free in devices],
        metrics.TOOL_CALLS: list(_calls(looked.calls())),
        metrics.INFLIGHT: [((), looked.inflight())],
        metrics.HISTORY_DROPPED: [((), looked.dropped())],
        metrics.LOOP_LAG: [((), lag.take())],
    }
    cluster = looked.cluster()
    if cluster is not None:
        rows |= _of_cluster(cluster)
    for metric, values in rows.items():
        yield _family(metric, values)


def _of_cluster(cluster: ClusterFigures) -> dict[Metric, Rows]:
    """Return what is known of every node; of one that is away, only that."""
    nodes = cluster.status.nodes
    there = [one for one in nodes if one.state != "away"]
    passed = cluster.forwarded
    return {
        metrics.CLUSTER_CONNECTED: [((), cluster.status.connected)],
        metrics.CLUSTER_UP: [((one.name,), one.state != "away") for one in nodes],
        metrics.CLUSTER_FREE: [((one.name,), one.free_bytes) for one in there if one.free_bytes is not None],
        metrics.CLUSTER_MODELS: [row for one in there for row in _states(one)],
        metrics.CLUSTER_SLOTS: [((one.name,), sum(model.slots for model in one.models)) for one in there],
        metrics.CLUSTER_BUSY: [((one.name,), sum(model.busy for model in one.models)) for one in there],
        metrics.CLUSTER_WAITING: [((one.name,), sum(model.waiting for model in one.models)) for one in there],
        metrics.CLUSTER_CLAIMS: [((one.name,), len(one.claims)) for one in nodes],
        metrics.CLUSTER_FORWARDED: [((name,), one.requests) for name, one in passed.items()],
        metrics.CLUSTER_FAILED: [((name,), one.failures) for name, one in passed.items()],
    }


def _states(node: NodeStatus) -> Iterator[tuple[tuple[str, ...], float]]:
    for state in ("loading", "ready"):
        yield (node.name, state), sum(model.state == state for model in node.models)


def _family(metric: Metric, rows: Rows) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    found: Family = kind(metrics.PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, figure in rows:
        found.add_metric(labels, figure)
    return found


def _devices(machine: Machine | None) -> Iterator[tuple[str, int, int]]:
    """Yield name, total and free bytes of each device, the host last; nothing before the first look at them."""
    if machine is None:
        return
    for one in machine.devices:
        yield one.name, one.total_bytes, one.free_bytes
    yield HOST, machine.host.total_bytes, machine.host.available_bytes


def _memory(status: ModelStatus) -> Iterator[tuple[tuple[str, ...], float]]:
    planned = {part["name"]: part["total_bytes"] for part in (status.plan or {}).get("parts", ())}
    for kind, held in (("planned", planned), ("told", status.footprint or {})):
        for device, count in held.items():
            yield (status.id, device, kind), count


def _calls(counts: Mapping[str, Counts]) -> Iterator[tuple[tuple[str, ...], float]]:
    for model, one in counts.items():
        yield (model, "native"), one.native
        yield (model, "recovered"), one.recovered.total()
        yield (model, "repaired"), one.repaired.total()
        yield (model, "left_as_text"), one.left_as_text.total()


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
