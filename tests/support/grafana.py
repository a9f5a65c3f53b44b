"""Grafana's dashboard of the metrics, made: docs/grafana.json."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.made import ROOT, Made

Json = dict[str, Any]
Query = tuple[str, str]
"""PromQL, and the legend of its lines."""

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_HEIGHT = 8


def _percentile(percent: int, metric: str) -> Query:
    rate = f"sum by (le, model) (rate(supervisor_{metric}_bucket[$__rate_interval]))"
    return f"histogram_quantile({percent / 100:g}, {rate})", f"{{{{model}}}} p{percent}"


def _per_second(metric: str, labels: str) -> Query:
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in labels.split(","))
    return f"sum by ({labels}) (rate(supervisor_{metric}_total[$__rate_interval]))", legend


PANELS: tuple[tuple[str, str, tuple[Query, ...]], ...] = (
    ("Requests by status", "reqps", (_per_second("requests", "status"),)),
    ("Errors by code", "reqps", (_per_second("errors", "code"),)),
    (
        "Time to the first token",
        "s",
        (_percentile(50, "time_to_first_token_seconds"), _percentile(95, "time_to_first_token_seconds")),
    ),
    ("Time in the queue", "s", (_percentile(50, "queue_seconds"), _percentile(95, "queue_seconds"))),
    ("Tokens written", "tokens/s", (_per_second("completion_tokens", "model"),)),
    ("Tokens of prompts", "tokens/s", (_per_second("prompt_tokens", "model"),)),
    ("Time per written token", "s", (_percentile(50, "token_seconds"), _percentile(95, "token_seconds"))),
    (
        "Requests in flight and waiting",
        "short",
        (("supervisor_requests_in_flight", "in flight"), ("supervisor_queue_length > 0", "{{model}} waits")),
    ),
    (
        "Memory by device and model",
        "bytes",
        (('sum by (device, model) (supervisor_model_memory_bytes{kind="told"})', "{{device}} {{model}}"),),
    ),
    ("Free memory of devices", "bytes", (("supervisor_device_free_bytes", "{{device}}"),)),
    ("Models by state", "short", (("sum by (state) (supervisor_model_state)", "{{state}}"),)),
    (
        "Loads and failures of engines",
        "short",
        (
            (
                "sum by (model, event) (increase(supervisor_engine_events_total[$__rate_interval]))",
                "{{model}} {{event}}",
            ),
            (
                "sum by (model, code) (increase(supervisor_engine_failures_total[$__rate_interval]))",
                "{{model}} {{code}}",
            ),
        ),
    ),
    ("The daemon's loop: longest delay", "s", (("supervisor_loop_lag_seconds", "delay"),)),
    ("Requests that engines put off", "short", (("engine_requests_deferred", "{{model}}"),)),
    (
        "Nodes of the cluster: busy slots and waiting requests",
        "short",
        (
            ("max by (node) (supervisor_cluster_node_slots_busy)", "{{node}} busy"),
            ("max by (node) (supervisor_cluster_node_queue_length)", "{{node}} waits"),
        ),
    ),
    (
        "Requests passed on to other nodes",
        "reqps",
        (
            _per_second("cluster_forwarded", "node"),
            (
                "sum by (node) (rate(supervisor_cluster_forward_failures_total[$__rate_interval]))",
                "{{node}}, in vain",
            ),
        ),
    ),
)


def dashboard() -> str:
    """The file that Grafana imports."""
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    whole = {
        "title": "llama-supervisor",
        "uid": "llama-supervisor",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(whole, indent=2) + "\n"


def _panel(number: int, title: str, unit: str, queries: tuple[Query, ...]) -> Json:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
        for at, (expression, legend) in enumerate(queries)
    ]
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": 12, "x": 12 * (number % 2), "y": _HEIGHT * (number // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


FILE = Made(ROOT / "docs" / "grafana.json", re.compile(r"\A\{.*\}\n\Z", re.DOTALL), dashboard)
