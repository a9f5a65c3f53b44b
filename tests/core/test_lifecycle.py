"""The transition table."""

from __future__ import annotations

import pytest

from supervisor.core.schedule.lifecycle import TRANSITIONS, EngineState, ImpossibleTransition, Trigger, step


def test_every_state_can_be_reached_and_every_living_one_can_end() -> None:
    assert set(TRANSITIONS.values()) == set(EngineState)
    living = set(EngineState) - {EngineState.STOPPED, EngineState.FAILED, EngineState.BACKOFF}
    assert {state for state, trigger in TRANSITIONS if trigger is Trigger.EXITED} == living


def test_a_step_outside_the_table_is_a_bug() -> None:
    with pytest.raises(ImpossibleTransition, match="stopped cannot take 'drain'"):
        step(EngineState.STOPPED, Trigger.DRAIN)
