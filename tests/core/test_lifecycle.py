"""The transition table and the diagram in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.schedule.lifecycle import TRANSITIONS, EngineState, ImpossibleTransition, Trigger, step


def test_every_state_can_be_reached_and_every_living_one_can_end() -> None:
    assert set(TRANSITIONS.values()) == set(EngineState)
    living = set(EngineState) - {EngineState.STOPPED, EngineState.FAILED, EngineState.BACKOFF}
    assert {state for state, trigger in TRANSITIONS if trigger is Trigger.EXITED} == living


def test_a_step_outside_the_table_is_a_bug() -> None:
    with pytest.raises(ImpossibleTransition, match="stopped cannot take 'drain'"):
        step(EngineState.STOPPED, Trigger.DRAIN)


def test_the_diagram_in_the_docs_is_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "architecture.md"
    lines = ["stateDiagram-v2", f"    [*] --> {EngineState.RESERVED.value}"]
    lines += [f"    {a.value} --> {b.value}: {trigger.value}" for (a, trigger), b in TRANSITIONS.items()]
    lines += [f"    {state.value} --> [*]" for state in (EngineState.STOPPED, EngineState.FAILED)]
    assert "\n".join(lines) in page.read_text(encoding="utf-8")
