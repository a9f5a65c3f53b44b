"""What turns save, in simulated time: against the same scheduler that takes requests in the order of arrival."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from supervisor.core.schedule import SchedulerLimits
from tests.core.schedule.closed_loop import Choice, Loop

IN_ORDER = SchedulerLimits(max_swap_wait=0, max_linger=0)
SEEDS = range(6)
_LOADS = 5.0  # seconds that the loads before a request may take, its turn once come


@dataclass(frozen=True)
class Mix:
    clients: int
    requests: int
    sizes: Mapping[str, int]
    room: int
    choose: Choice
    swaps: float  # at most so much of what the order of arrival takes; so too `seconds` and `wait` of a request
    seconds: float
    wait: float


def _any_of(names: str) -> Choice:
    return lambda _client, _number, dice: dice.choice(names)


def _large_at_times(_client: int, _number: int, dice: random.Random) -> str:
    return "large" if dice.random() < 0.05 else dice.choice(("small", "other"))


MIXES = {
    "one room": Mix(6, 16, dict.fromkeys("abc", 10), 13, _any_of("abc"), 0.85, 1.05, 1.05),
    "three rooms": Mix(8, 24, dict.fromkeys("abcdef", 10), 33, _any_of("abcdef"), 0.65, 1.0, 0.9),
    "a large one at times": Mix(6, 24, {"small": 10, "other": 10, "large": 20}, 23, _large_at_times, 0.6, 0.9, 0.7),
}


def _run(mix: Mix, limits: SchedulerLimits) -> tuple[float, float, float]:
    """Swaps, seconds and what requests waited: sums over all seeds."""
    loops = [Loop(mix.sizes, mix.room, limits) for _ in SEEDS]
    for seed, loop in zip(SEEDS, loops, strict=True):
        loop.run(mix.clients, mix.requests, mix.choose, seed)
        assert max(loop.waits) < limits.max_swap_wait + _LOADS
    return sum(loop.loads for loop in loops), sum(loop.now for loop in loops), sum(sum(loop.waits) for loop in loops)


@pytest.mark.parametrize("name", MIXES)
def test_turns_save_swaps_and_time_and_requests_wait_no_longer(name: str) -> None:
    mix = MIXES[name]
    ours, in_order = _run(mix, SchedulerLimits()), _run(mix, IN_ORDER)
    for figure, other, share in zip(ours, in_order, (mix.swaps, mix.seconds, mix.wait), strict=True):
        assert figure <= share * other


def test_one_client_that_goes_round_waits_for_nothing_but_loads() -> None:
    loop = Loop(dict.fromkeys("abc", 10), 13)
    loop.run(1, 12, lambda _client, number, _dice: "abc"[number % 3], 0)
    assert loop.loads == 12
    assert max(loop.waits) == pytest.approx(1.0 + 0.1 + 0.02 + 0.04, abs=0.03)
