"""Compares what became of llama.cpp's server tests in a direct run and in one through a daemon of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.suite.runner import Result

READY = '"status": "ok"'
"""Of the answer of a server that is asked whether it is ready."""

Results = Mapping[str, Result]

_VARY = frozenset(
    {
        "id",
        "item_id",
        "response_id",
        "call_id",
        "id_slot",
        "created",
        "created_at",
        "completed_at",
        "time_ms",
        "timings",
    }
    | {"t_start", "model", "model_path", "owned_by", "system_fingerprint", "build_info"}
    | {"endpoint_metrics", "endpoint_slots", "ui"}  # what our engines are started with
    | {"code", "param"}  # an error's code is a number there, a name here
)
"""Fields of answers that differ between two runs of one server."""


@dataclass(frozen=True)
class Figures:
    """Of one file, or of all.

    Attributes:
        tests: that ran directly; those that are skipped there do not count.
        hold: in which every assertion holds directly.
        hold_through: of these, those in which every assertion holds through us.
        real: the others, which need the real model.
        alike: of these, those that fail no further assertion through us, and get the same answers.
    """

    tests: int
    hold: int
    hold_through: int
    real: int
    alike: int

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


def steady(value: Any) -> Any:
    """What two runs of one server have in common of an answer."""
    if isinstance(value, dict):
        return {key: steady(one) for key, one in value.items() if key not in _VARY}
    return [steady(one) for one in value] if isinstance(value, list) else value


def difference(direct: Result, through: Result) -> str | None:
    """Say how a test differs through us; None if it does not, or is skipped directly."""
    if direct.outcome == "skipped" or through.holds:
        return None
    if more := through.failed - direct.failed:
        return f"fails at {', '.join(sorted(more))}"
    if _kind(through) != _kind(direct):
        return f"ends otherwise: {through.raised}"
    return _answers(direct, through)


def _kind(result: Result) -> str:
    return f"{result.outcome} {(result.raised or '').partition(':')[0]}"


def _answers(direct: Result, through: Result) -> str | None:
    """Threads ask in any order, and a server that comes up is asked whether it is ready, often."""
    theirs, ours = (
        sorted(json.dumps(steady(one), sort_keys=True) for one in result.said) for result in (direct, through)
    )
    more = [one for one in ours if one not in theirs and READY not in one]
    return f"gets another answer: {more[0][:300]}" if more else None


def differences(direct: Results, through: Results) -> dict[str, str]:
    """Return how each test that differs does."""
    found = {test: difference(result, through[test]) for test, result in direct.items() if test in through}
    missing = {test: "did not run" for test in direct if test not in through}
    return {test: what for test, what in found.items() if what is not None} | missing


def file_of(test: str) -> str:
    """The file of a test: `basic` of `basic.py::test_x`."""
    return test.partition(".py::")[0]


def figures(direct: Results, through: Results) -> dict[str, Figures]:
    """Return the figures of each file."""
    differ = differences(direct, through)
    made: dict[str, Figures] = {}
    for test, result in sorted(direct.items()):
        if result.outcome == "skipped":
            continue
        same = test not in differ
        one = Figures(1, 1, int(same), 0, 0) if result.holds else Figures(1, 0, 0, 1, int(same))
        file = file_of(test)
        made[file] = made[file] + one if file in made else one
    return made
