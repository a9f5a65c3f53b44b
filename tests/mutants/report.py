"""What became of the changes, by package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tests.mutants.changes import Change

Verdict: TypeAlias = Literal["noticed", "timed out", "survived", "cut off", "without effect"]
"""A change that timed out was noticed: a test did not end. One that was cut off was not, by the tests that had time."""

_VERDICTS: Final[Sequence[Verdict]] = ("noticed", "timed out", "survived", "cut off", "without effect")


@dataclass(frozen=True)
class Outcome:
    """What the tests say of one change.

    Attributes:
        by: the test that failed, if one did and said so; of one that was cut off, how much was not tried.
    """

    change: Change
    verdict: Verdict
    by: str

    def __str__(self) -> str:
        word = "SURVIVED" if self.verdict == "survived" else self.verdict
        return f"{word:<10} {self.change}" + (f"  ({self.by})" if self.by else "")


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """A line for each package, and one for all; the share is of those that have an effect."""
    counts: dict[str, Counter[Verdict]] = {}
    for one in outcomes:
        package = str(Path(one.change.path).parent.relative_to("supervisor"))
        counts.setdefault(package, Counter())[one.verdict] += 1
    rows = sorted(counts.items())
    rows.append(("all", sum((count for _, count in rows), Counter())))
    heads = (("tried", 6), ("noticed", 8), ("timed out", 10), ("survived", 9), ("cut off", 8), ("without effect", 15))
    lines = [" ".join([f"{'package':<28}", *(f"{head:>{width}}" for head, width in heads)])]
    for name, count in rows:
        tried = count.total() - count["without effect"]
        noticed, late, survived, cut, apart = (count[verdict] for verdict in _VERDICTS)
        share = f"{(noticed + late) / max(tried, 1):.0%}"
        lines.append(f"{name:<28} {tried:6} {noticed:8} {late:10} {survived:9} {cut:8} {apart:15}  {share:>4} noticed")
    return lines
