"""In which order, and for how long, tests are asked about a change."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from tests.mutants.changes import Change
from tests.mutants.maps import file_of, is_own

FIRST: Final = 10.0  # seconds of tests that are tried first: they mostly suffice
MOST: Final = 60.0  # seconds of tests for one change
_FEW: Final = 4  # cases of one test that are tried first
_HEAVY: Final = 30.0  # seconds of a file that comes last


@dataclass(frozen=True)
class Rounds:
    """The tests of one change.

    Attributes:
        tests: one round after the other.
        left: how many are not tried, since they would take too long.
    """

    tests: Sequence[Sequence[str]]
    left: int


def rounds(change: Change, tests: Sequence[str], seconds: Mapping[str, float], draw: random.Random) -> Rounds:
    """A few cases of the tests beside the change; then all, up to a limit of time."""
    ordered = nearest_first(change, tests, seconds)
    few = set(_few_of_each(ordered, draw))
    first = _within(FIRST, [test for test in ordered if test in few], seconds)
    begun = set(first)
    others = [test for test in ordered if test not in begun]
    second = _within(MOST - sum(seconds.get(test, 0.0) for test in first), others, seconds)
    return Rounds([one for one in (first, second) if one], len(others) - len(second))


def nearest_first(change: Change, tests: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """Files that take long come last; of the others those beside the change first, of these the quick ones."""
    total: dict[str, float] = {}
    for test in tests:
        total[file_of(test)] = total.get(file_of(test), 0.0) + seconds.get(test, 0.0)

    def rank(test: str) -> tuple[bool, int, float, str, float, str]:
        file = file_of(test)
        return total[file] > _HEAVY, _distance(change.path, file), total[file], file, seconds.get(test, 0.0), test

    return sorted(tests, key=rank)


def _distance(path: str, file: str) -> int:
    """0: the module's own tests; 1: beside it; 2: others."""
    if is_own(path, file):
        return 0
    module, test = PurePosixPath(path).relative_to("supervisor"), PurePosixPath(file).relative_to("tests")
    place = test.parent if test.parts[0] != "shell" else PurePosixPath()
    package = module.parent if module.parent.parts else module.with_suffix("")
    return 1 if place == package or test.stem == f"test_{package.name}" else 2


def _few_of_each(tests: Sequence[str], draw: random.Random) -> list[str]:
    """By chance some of the cases of each test."""
    cases: dict[str, list[str]] = {}
    for test in tests:
        cases.setdefault(test.partition("[")[0], []).append(test)
    return [one for found in cases.values() for one in draw.sample(found, min(_FEW, len(found)))]


def _within(limit: float, tests: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """As many of the first tests as the time suffices for; at least one, where there is one."""
    found: list[str] = []
    for test in tests:
        limit -= seconds.get(test, 0.0)
        if limit < 0 and found:
            break
        found.append(test)
    return found
