"""The table of metrics in docs/metrics.md, made from their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisor.core.history.metrics import METRICS, Metric
from tests.support.made import ROOT, Made

_HEAD = "| metric | kind | labels | meaning |\n|---|---|---|---|\n"


def table(rows: Iterable[Metric] = METRICS) -> str:
    """A line for each metric, in the order of the page."""
    lines = [f"| `{row.shown}` | {row.kind} | {_labels(row)} | {row.help} |" for row in rows]
    return _HEAD + "\n".join(lines) + "\n"


def _labels(row: Metric) -> str:
    return ", ".join(f"`{label}`" for label in row.labels)


TABLE = Made(ROOT / "docs" / "metrics.md", re.compile(re.escape(_HEAD) + r"(?:\|.*\|\n?)*"), table)
