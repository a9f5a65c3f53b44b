"""The largest context, found with few questions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.plan.growth import largest_step


@given(
    st.integers(0, 1000),
    st.integers(1, 1000),
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
    st.integers(0, 99_999),
)
def test_it_is_the_last_step_that_fits(low: int, width: int, slopes: list[int], start: int) -> None:
    asked = []

    def probe(step: int) -> int:
        asked.append(step)
        fallen = sum(slopes[number % len(slopes)] for number in range((step - low) // 16))
        return start - 16 * fallen - (step - low) % 16

    found = largest_step(low, low + width, probe)
    questions = len(asked)
    assert found == max((step for step in range(low, low + width + 1) if probe(step) >= 0), default=low)
    assert questions <= 2 + 4 * 11


def test_a_straight_line_takes_four_questions() -> None:
    asked = []

    def probe(step: int) -> int:
        asked.append(step)
        return 70_000 - 131 * step

    assert largest_step(16, 1024, probe) == 534
    assert len(asked) == 4
