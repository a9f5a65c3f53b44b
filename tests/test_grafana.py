"""Grafana's dashboard asks for metrics that there are, by labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from supervisor.core.history.metrics import METRICS, Metric
from tests.support.grafana import FILE

_NAME = re.compile(r"\b(?:supervisor|engine)_\w+")
_LABELS = re.compile(r"\bby \(([^)]*)\)|(\w+)=~?\"|\{\{(\w+)\}\}")
_ENGINE = "engine_"


def names_of(row: Metric) -> list[str]:
    """What a query may name of a metric."""
    return [f"{row.shown}_bucket", f"{row.shown}_sum", f"{row.shown}_count"] if row.buckets else [row.shown]


def queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard, and its legend."""
    for panel in json.loads(FILE.shown())["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def fault(expression: str, legend: str, rows: Iterable[Metric] = METRICS) -> str:
    """What is wrong with a query; empty for nothing."""
    known = {name: row for row in rows for name in names_of(row)}
    for name in _NAME.findall(expression):
        row = known.get(name, Metric(name, "gauge", "", ("model",)) if name.startswith(_ENGINE) else None)
        if row is None:
            return f"there is no metric {name}"
        words = ",".join(",".join(found) for found in _LABELS.findall(expression + legend)).split(",")
        unknown = {word.strip() for word in words} - {"", "le", *row.labels}
        if unknown:
            return f"{name} has no label {unknown}"
    return "" if _NAME.search(expression) else "it asks for nothing"


@pytest.mark.parametrize(("expression", "legend"), list(queries()))
def test_each_query_asks_for_what_there_is(expression: str, legend: str) -> None:
    assert fault(expression, legend) == ""


@pytest.mark.parametrize(
    "expression",
    ["supervisor_request_total", "sum by (key) (supervisor_requests_total)", "supervisor_token_seconds", "up",
     'supervisor_slots{device="CPU"}'],
)  # fmt: skip
def test_a_query_for_what_there_is_not_is_noticed(expression: str) -> None:
    assert fault(expression, "") != ""


def test_a_metric_that_gets_another_name_is_noticed() -> None:
    renamed = [replace(row, name=f"{row.name}_x") for row in METRICS]
    ours = [query for query in queries() if not query[0].startswith(_ENGINE)]
    assert all(fault(*query, renamed) for query in ours)


def test_panels_do_not_lie_upon_each_other() -> None:
    panels = json.loads(FILE.shown())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)
