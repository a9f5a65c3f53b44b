"""Estimates and plans are what they were: a change of one is made on purpose."""

from __future__ import annotations

from tests.core.recorded.memory import FOLDER, estimates, plans
from tests.support.recorded import changed

TOLD = "is another one; if that is meant, `python -m tests.core.recorded.memory` keeps it"


def test_estimates_are_what_they_were() -> None:
    names = changed(FOLDER / "estimates.json", estimates())
    assert not names, f"the estimate of {names} {TOLD}"


def test_plans_are_what_they_were() -> None:
    names = changed(FOLDER / "plans.json", plans())
    assert not names, f"the plan of {names} {TOLD}"
