"""The counters of tool calls that `GET /api/v1/toolcalls` shows."""

from __future__ import annotations

from collections import Counter

from supervisor.core.recovery import Tally
from supervisor.proxy.counts import Counts

HELD = Tally(
    recovered=Counter({"hermes": 3, "glm-4.5": 1}),
    repaired=Counter({"hermes": 1, "glm-4.5": 0}),
    left_as_text=Counter(not_a_call=2),
    native=4,
    repeated=5,
    saved=True,
    swallowed=True,
)


def test_counters_begin_with_nothing() -> None:
    assert not any(Counts().to_json().values())


def test_what_answers_held_is_added_up() -> None:
    counts = Counts()
    counts.add(HELD, failed=True)
    counts.add(HELD, failed=False)
    counts.add(Tally(), failed=False)
    assert counts.to_json() == {
        "answers": 3,
        "native": 8,
        "recovered": {"hermes": 6, "glm-4.5": 2},
        "repaired": {"hermes": 2},
        "left_as_text": {"not_a_call": 4},
        "repeated": 10,
        "saved": 2,
        "failed": 1,
        "swallowed": 2,
    }
