"""Find a device's seconds per unit of work from timed runs: least squares of relative errors, nothing below zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from supervisor.core.speed.machine import Rates

_SWEEPS = 1000
_HOLD = 2e-3  # weight of the guess beside that of one run: decides only between kinds that no run tells apart


@dataclass(frozen=True, slots=True)
class Timed:
    """One timed run: the work of a device by kind, and the seconds it took."""

    work: Mapping[str, float]
    seconds: float


def fit(runs: Sequence[Timed], guess: Rates) -> Rates:
    """Return the rates that explain the runs best, in relative terms, near a guess where several would do as well.

    What no run has stays as guessed. The guess is scaled first, prompts and tokens each by one factor, so that only its
    proportions count. Then coordinate descent on the normal equations: each kind in turn gets what is best for it
    while the others stay, zero at least. Kinds are measured in shares of their guess: bytes and layers weigh alike.
    """
    kinds = sorted({kind for run in runs for kind in run.work if guess.of(kind) > 0})
    scaled = {kind: guess.of(kind) * _scale(runs, guess, _is_many(kind)) for kind in kinds}
    rows = [[run.work.get(kind, 0.0) * scaled[kind] / run.seconds for kind in kinds] for run in runs]
    shares = _descend(rows, len(kinds))
    found = {kind: share * scaled[kind] for kind, share in zip(kinds, shares, strict=True)}
    unseen = {kind: seconds for kind, seconds in guess.seconds.items() if kind not in found}
    return Rates(unseen | found, "measured")


def _is_many(kind: str) -> bool:
    return "_many" in kind or kind == "request"


def _scale(runs: Sequence[Timed], guess: Rates, many: bool) -> float:
    """Return the middle of measured over guessed seconds, of prompts or of tokens."""
    alike = [run for run in runs if any(map(_is_many, run.work)) == many]
    foretold = [sum(amount * guess.of(kind) for kind, amount in run.work.items()) for run in alike]
    ratios = [run.seconds / seconds for run, seconds in zip(alike, foretold, strict=True) if seconds > 0]
    return median(ratios) if ratios else 1.0


def _descend(rows: Sequence[Sequence[float]], count: int) -> list[float]:
    columns = range(count)
    squares = [[sum(row[one] * row[other] for row in rows) for other in columns] for one in columns]
    targets = [sum(row[column] for row in rows) for column in columns]
    found = [1.0] * count
    for _ in range(_SWEEPS):
        for column in columns:
            own = squares[column][column]
            others = sum(squares[column][other] * found[other] for other in columns) - own * found[column]
            found[column] = max(0.0, (targets[column] - others + _HOLD) / (own + _HOLD))
    return found
