"""The table of an engine's states in docs/architecture.md, made from the program's own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.core.schedule.lifecycle import TRANSITIONS, EngineState, Trigger
from tests.support.made import ROOT, Made

PAGE = ROOT / "docs" / "architecture.md"
_HEAD = "| state | what ends it → the next state |\n|---|---|\n"


def table(transitions: Mapping[tuple[EngineState, Trigger], EngineState] = TRANSITIONS) -> str:
    """One row for each state, in the order of a life."""
    return _HEAD + "".join(f"| `{state.value}` | {_steps(state, transitions)} |\n" for state in EngineState)


def _steps(state: EngineState, transitions: Mapping[tuple[EngineState, Trigger], EngineState]) -> str:
    found = [f"{why.value} → `{after.value}`" for (before, why), after in transitions.items() if before is state]
    return ", ".join(found) or "nothing: the end"


STATES = Made(PAGE, re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*"), table)
