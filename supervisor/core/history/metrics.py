"""The metrics at `/metrics`: a row each, from which the counters, docs/metrics.md and the dashboard's checks come.

Labels have few values: a model is an id of the catalogue, a path a row of the table of paths, a code one of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "supervisor_"


@dataclass(frozen=True, slots=True)
class Metric:
    """One of them. `name`: without PREFIX and a counter's `_total`. `buckets`: upper bounds of a histogram."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def shown(self) -> str:
        """The name at `/metrics`."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_LOAD_SECONDS: Final = (0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
_TOKEN_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)

REQUESTS: Final = Metric("requests", "counter", "Relayed requests that have ended.", ("model", "path", "status"))
ERRORS: Final = Metric("errors", "counter", "Relayed requests that ended with an error.", ("model", "code"))
REQUEST_SECONDS: Final = Metric(
    "request_seconds", "histogram", "From a request's arrival to its end.", ("model",), _SECONDS
)
QUEUE_SECONDS: Final = Metric(
    "queue_seconds",
    "histogram",
    "From arrival until there is an engine, loads included.",
    ("model",),
    _SECONDS,
)
FIRST_TOKEN_SECONDS: Final = Metric(
    "time_to_first_token_seconds", "histogram", "From a request's arrival to the first token.", ("model",), _SECONDS
)
TOKEN_SECONDS: Final = Metric(
    "token_seconds", "histogram", "The engine's time per generated token, a request each.", ("model",), _TOKEN_SECONDS
)
PROMPT_TOKENS: Final = Metric("prompt_tokens", "counter", "Tokens of prompts, cached ones included.", ("model",))
CACHED_TOKENS: Final = Metric("cached_tokens", "counter", "Tokens of prompts from an engine's cache.", ("model",))
COMPLETION_TOKENS: Final = Metric("completion_tokens", "counter", "Tokens that were generated.", ("model",))
PROMPT_SECONDS: Final = Metric("prompt_processing_seconds", "counter", "Engines' time for prompts.", ("model",))
PREDICTED_SECONDS: Final = Metric("generation_seconds", "counter", "Engines' time for generated tokens.", ("model",))
ENGINE_EVENTS: Final = Metric(
    "engine_events",
    "counter",
    "What happened to engines: started, ready, stopped, gone, …, by the log's names.",
    ("model", "event"),
)
ENGINE_FAILURES: Final = Metric(
    "engine_failures", "counter", "Loads that failed and engines that crashed or hung, by code.", ("model", "code")
)
LOAD_SECONDS: Final = Metric(
    "load_seconds", "histogram", "From an engine's start until it is ready.", ("model",), _LOAD_SECONDS
)
TOOL_CALLS: Final = Metric(
    "tool_calls",
    "counter",
    "Tool calls in watched answers: native, recovered, repaired, or left as text.",
    ("model", "kind"),
)
MODEL_STATE: Final = Metric("model_state", "gauge", "1 for the state that a model is in.", ("model", "state"))
SLOTS: Final = Metric("slots", "gauge", "Requests that a model's engines take at a time.", ("model",))
LEASES: Final = Metric("slots_busy", "gauge", "Requests that a model's engines are answering.", ("model",))
WAITING: Final = Metric("queue_length", "gauge", "Requests that wait for an engine of the model.", ("model",))
MEMORY: Final = Metric(
    "model_memory_bytes",
    "gauge",
    "What a model's engines hold on a device: planned, or as the engine told.",
    ("model", "device", "kind"),
)
RSS: Final = Metric("model_resident_bytes", "gauge", "Resident memory of a model's processes.", ("model",))
DEVICE_FREE: Final = Metric("device_free_bytes", "gauge", "Free memory of a device, at the last look.", ("device",))
DEVICE_TOTAL: Final = Metric("device_total_bytes", "gauge", "Memory of a device.", ("device",))
LOOP_LAG: Final = Metric("loop_lag_seconds", "gauge", "The longest delay of the daemon's loop since the last scrape.")
HISTORY_DROPPED: Final = Metric("history_dropped", "counter", "Records that the history could not take in time.")
INFLIGHT: Final = Metric("requests_in_flight", "gauge", "Requests that wait or are being answered.")

CLUSTER_CONNECTED: Final = Metric("cluster_connected", "gauge", "1 while this node hears the others of its cluster.")
CLUSTER_UP: Final = Metric("cluster_node_up", "gauge", "1 for a node that is there, 0 for one that is away.", ("node",))
CLUSTER_FREE: Final = Metric(
    "cluster_node_free_bytes", "gauge", "Memory that models could have on a node, as it last told.", ("node",)
)
CLUSTER_MODELS: Final = Metric(
    "cluster_node_models", "gauge", "Models that are ready, or loading, on a node.", ("node", "state")
)
CLUSTER_SLOTS: Final = Metric(
    "cluster_node_slots", "gauge", "Requests that a node's engines take at a time.", ("node",)
)
CLUSTER_BUSY: Final = Metric(
    "cluster_node_slots_busy", "gauge", "Requests that a node's engines are answering.", ("node",)
)
CLUSTER_WAITING: Final = Metric("cluster_node_queue_length", "gauge", "Requests that wait on a node.", ("node",))
CLUSTER_CLAIMS: Final = Metric("cluster_node_claims", "gauge", "Models that a node has the right to load.", ("node",))
CLUSTER_FORWARDED: Final = Metric(
    "cluster_forwarded", "counter", "Requests that this node has passed on to another one.", ("node",)
)
CLUSTER_FAILED: Final = Metric(
    "cluster_forward_failures",
    "counter",
    "Requests passed on to a node that could not be reached, or broke off its answer.",
    ("node",),
)

COUNTED: Final[tuple[Metric, ...]] = (
    *(REQUESTS, ERRORS, REQUEST_SECONDS, QUEUE_SECONDS, FIRST_TOKEN_SECONDS, TOKEN_SECONDS),
    *(PROMPT_TOKENS, CACHED_TOKENS, COMPLETION_TOKENS, PROMPT_SECONDS, PREDICTED_SECONDS),
    *(ENGINE_EVENTS, ENGINE_FAILURES, LOAD_SECONDS),
)
"""Those that are counted when something ends."""

PRESENT: Final[tuple[Metric, ...]] = (
    *(INFLIGHT, WAITING, MODEL_STATE, SLOTS, LEASES, TOOL_CALLS),
    *(MEMORY, RSS, DEVICE_FREE, DEVICE_TOTAL, LOOP_LAG, HISTORY_DROPPED),
)
"""Those that are looked at when somebody asks."""

CLUSTERED: Final[tuple[Metric, ...]] = (
    *(CLUSTER_CONNECTED, CLUSTER_UP, CLUSTER_FREE, CLUSTER_MODELS, CLUSTER_SLOTS, CLUSTER_BUSY, CLUSTER_WAITING),
    *(CLUSTER_CLAIMS, CLUSTER_FORWARDED, CLUSTER_FAILED),
)
"""Those that a node of a cluster has besides."""

METRICS: Final[tuple[Metric, ...]] = (*COUNTED, *PRESENT, *CLUSTERED)
"""All of them, in the order of the page."""
