"""From samples to figures: medians over rounds, ratios between servers, one table."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SERVERS = ("direct", "bare", "supervisor", "keyed", "router")
"""Columns, of which those without a figure are left out."""


@dataclass(frozen=True)
class Target:
    """A goal: the ratio of two servers' figures of a measure, at most, or with `least` at least so much."""

    measure: str
    goal: float
    ours: str = "supervisor"
    theirs: str = "router"
    least: bool = False

    def row(self, figures: Mapping[str, Mapping[str, float]]) -> str | None:
        """Return its row in a table of Markdown; None where it was not measured."""
        found = figures.get(self.measure, {})
        if not {self.ours, self.theirs} <= found.keys():
            return None
        if found[self.theirs] <= 0:  # a difference that the machine's other work has made
            return f"| {self.measure} | {self.ours}/{self.theirs} | – | {self.goal:g} | not measured |"
        ratio = found[self.ours] / found[self.theirs]
        met = ratio >= self.goal if self.least else ratio <= self.goal
        goal = f"{'≥' if self.least else '≤'} {self.goal:g}"
        return f"| {self.measure} | {self.ours}/{self.theirs} | {ratio:.2f} | {goal} | {'yes' if met else 'no'} |"


def targets_table(targets: Sequence[Target], figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the goals that were measured, as Markdown."""
    rows = [row for target in targets if (row := target.row(figures)) is not None]
    return "\n".join(["| measure | ratio of | is | goal | met |", "|---|---|---|---|---|", *rows])


@dataclass
class Report:
    """Collects samples by measure, unit and server; a measure's figure is the median of its samples."""

    samples: dict[tuple[str, str], dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def add(self, measure: str, unit: str, server: str, *values: float) -> None:
        """Add samples."""
        self.samples[measure, unit][server].extend(values)

    def figures(self) -> dict[str, dict[str, float]]:
        """Measure and unit → server → median."""
        return {
            f"{measure} [{unit}]": {server: statistics.median(values) for server, values in by_server.items()}
            for (measure, unit), by_server in self.samples.items()
        }

    def table(self) -> str:
        """All figures, as Markdown."""
        servers = [server for server in SERVERS if any(server in found for found in self.samples.values())]
        head = ("measure", "unit", *servers, "supervisor/router", "supervisor/direct")
        rows = [head, *self._rows(servers)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
        lines = [f"| {' | '.join(row)} |" for row in padded]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return "\n".join(lines)

    def _rows(self, servers: Sequence[str]) -> Iterator[tuple[str, ...]]:
        for (measure, unit), by_server in self.samples.items():
            medians = {server: statistics.median(values) for server, values in by_server.items()}
            ours = medians.get("supervisor")
            yield (
                measure,
                unit,
                *(_number(medians.get(server)) for server in servers),
                _ratio(ours, medians.get("router")),
                _ratio(ours, medians.get("direct")),
            )


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ratio(ours: float | None, other: float | None) -> str:
    return f"{ours / other:.2f}" if ours is not None and other else "–"
