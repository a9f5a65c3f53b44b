"""What became of the changes, by package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tests.mutants.changes import Change

Verdict: TypeAlias = Literal["noticed", "timed out", "survived", "without effect"]
"""A change that timed out was noticed: the tests did not end within their limit of time."""

_VERDICTS: Final[Sequence[Verdict]] = ("noticed", "timed out", "survived", "without effect")


@dataclass(frozen=True)
class Outcome:
    """What the tests say of one change.

    Attributes:
        by: the test that failed, if one did and said so.
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
    lines = [f"{'package':<28} {'tried':>6} {'noticed':>8} {'timed out':>10} {'survived':>9} {'without effect':>15}"]
    for name, count in rows:
        tried = count.total() - count["without effect"]
        seen = tried - count["survived"]
        noticed, late, survived, apart = (count[verdict] for verdict in _VERDICTS)
        share = f"{seen / max(tried, 1):.0%}"
        lines.append(f"{name:<28} {tried:6} {noticed:8} {late:10} {survived:9} {apart:15}  {share:>4} noticed")
    return lines
