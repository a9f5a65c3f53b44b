"""How much memory an engine may come to hold."""

from __future__ import annotations

from supervisor.core.memory import Growth
from supervisor.core.watch import allowed_bytes, outgrown

GIB = 1 << 30
SLACK = 256 << 20


def test_what_is_planned_and_what_may_grow_count() -> None:
    assert allowed_bytes(GIB, (), 0.5) == GIB * 3 // 2 + SLACK
    assert allowed_bytes(GIB, (Growth("prompt cache", GIB), Growth("states", GIB)), 1.0) == 6 * GIB + SLACK
    assert allowed_bytes(GIB, (Growth("prompt cache", None),), 0.5) is None


def test_a_plan_that_was_wrong_from_the_start_is_no_growth() -> None:
    assert outgrown(3 * GIB, 2 * GIB, first=GIB, share=0.5)
    assert not outgrown(2 * GIB, 2 * GIB, first=GIB, share=0.5)
    assert not outgrown(3 * GIB, GIB, first=3 * GIB, share=0.5)
    assert outgrown(5 * GIB, GIB, first=3 * GIB, share=0.5)
