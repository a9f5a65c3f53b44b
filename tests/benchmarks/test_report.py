"""The table of goals."""

from __future__ import annotations

import pytest

from benchmarks.report import Target, targets_table


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (Target("a", 0.5), "| a | supervisor/router | 0.50 | ≤ 0.5 | yes |"),
        (Target("a", 0.4), "| a | supervisor/router | 0.50 | ≤ 0.4 | no |"),
        (Target("a", 0.5, least=True), "| a | supervisor/router | 0.50 | ≥ 0.5 | yes |"),
        (Target("a", 0.6, least=True), "| a | supervisor/router | 0.50 | ≥ 0.6 | no |"),
        (Target("b", 1.0), "| b | supervisor/router | – | 1 | not measured |"),
        (Target("a", 1.0, "keyed"), None),
        (Target("c", 1.0), None),
    ],
)
def test_a_goal_is_met_or_not_or_was_not_measured(target: Target, told: str | None) -> None:
    figures = {"a": {"supervisor": 1.0, "router": 2.0}, "b": {"supervisor": 1.0, "router": -0.1}}
    assert target.row(figures) == told
    assert (told is not None) == (len(targets_table([target], figures).splitlines()) == 3)
