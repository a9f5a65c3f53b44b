"""What becomes of damaged requests and answers is what it was: a change of it is made on purpose."""

from __future__ import annotations

from tests.core.recorded.bodies import KEPT, outcomes
from tests.support.recorded import changed


def test_damaged_requests_and_answers_become_what_they_became() -> None:
    found = outcomes()
    names = changed(KEPT, found)
    assert not names, (
        f"{names} become something else; if that is meant, `python -m tests.core.recorded.bodies` keeps it"
    )


def test_a_part_is_turned_and_a_part_refused() -> None:
    told = [one for outcome in outcomes().values() for one in outcome]
    refused = sum(isinstance(one, list) and one[:1] in (["refused"], ["raised"]) for one in told)
    assert 0.02 * len(told) < refused < 0.5 * len(told)
