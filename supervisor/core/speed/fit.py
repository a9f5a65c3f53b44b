"""Find a device's seconds per unit of work from timed runs: least squares of relative errors, nothing below zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.core.speed.machine import Rates

_SWEEPS = 2000
_PRIOR = 1e-4  # of one run's weight: holds a kind that no run tells apart from others near its share


@dataclass(frozen=True, slots=True)
class Timed:
    """One timed run: the work of a device by kind, and the seconds it took."""

    work: Mapping[str, float]
    seconds: float


def fit(runs: Sequence[Timed]) -> Rates:
    """Return the rates that explain the runs best, in relative terms; none of no runs.

    Coordinate descent on the normal equations: each kind in turn gets the value that is best for it while the others
    stay, zero at least. The columns are scaled to one, so that bytes and layers weigh alike.
    """
    kinds = sorted({kind for run in runs for kind in run.work})
    rows = [[run.work.get(kind, 0.0) / run.seconds for kind in kinds] for run in runs]
    scales = [sum(row[column] for row in rows) or 1.0 for column in range(len(kinds))]
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    found = _descend(scaled, len(kinds))
    return Rates({kind: value / scale for kind, value, scale in zip(kinds, found, scales, strict=True)}, "measured")


def _descend(rows: Sequence[Sequence[float]], count: int) -> list[float]:
    squares = [[sum(row[one] * row[other] for row in rows) for other in range(count)] for one in range(count)]
    targets = [sum(row[column] for row in rows) for column in range(count)]
    found = [0.0] * count
    for _ in range(_SWEEPS):
        for column in range(count):
            others = sum(squares[column][other] * found[other] for other in range(count)) - (
                squares[column][column] * found[column]
            )
            ridge = squares[column][column] * (1 + _PRIOR)
            found[column] = max(0.0, (targets[column] - others) / ridge) if ridge else 0.0
    return found
