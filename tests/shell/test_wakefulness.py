"""Suspensions are noticed by two clocks that drift apart."""

from __future__ import annotations

import asyncio
import time

import pytest

from supervisor.system.wakefulness import Epoch, lifetime, watch_for_resume
from tests.shell.waiting import until

pytestmark = pytest.mark.anyio


async def test_a_jump_is_told_once_with_its_length() -> None:
    slept = 0.0
    told: list[float] = []
    watching = asyncio.create_task(watch_for_resume(told.append, lifetime=lambda: time.monotonic() + slept, every=0.01))
    await asyncio.sleep(0.1)
    assert told == []
    slept = 3600.0
    await until(lambda: bool(told), "it is told")
    slept += 0.5
    await asyncio.sleep(0.1)
    assert [round(seconds) for seconds in told] == [3600]
    slept += 10
    await until(lambda: len(told) == 2, "the next one, too")
    watching.cancel()


def test_the_clock_of_a_lifetime_runs() -> None:
    before = lifetime()
    time.sleep(0.01)
    assert 0.01 <= lifetime() - before < 5


def test_the_same_moment_always_has_the_same_date() -> None:
    jitter = iter([0.0, 0.0004, -0.0007, 0.2])
    epoch = Epoch(lifetime=lambda: 50.0, epoch=lambda: 1_700_000_000.0 + next(jitter))
    assert {epoch(40.0), epoch(40.0), epoch(40.0)} == {1_699_999_990.0}


def test_a_clock_that_is_set_counts_from_then_on() -> None:
    set_by = 0.0
    epoch = Epoch(lifetime=lambda: 50.0, epoch=lambda: 1_700_000_000.0 + set_by)
    set_by = 3600.0
    assert epoch(40.0) == 1_700_003_590.0
