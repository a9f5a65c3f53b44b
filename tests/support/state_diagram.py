"""The diagram in docs/architecture.md, made from the table of an engine's states."""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.core.schedule.lifecycle import TRANSITIONS, EngineState, Trigger
from tests.support.made import ROOT, Made

PAGE = ROOT / "docs" / "architecture.md"
_BEGINS, _ENDS = EngineState.RESERVED, (EngineState.STOPPED, EngineState.FAILED)


def diagram(transitions: Mapping[tuple[EngineState, Trigger], EngineState] = TRANSITIONS) -> str:
    """One arrow for each row of the table, from the first state to the last ones."""
    rows = (f"    {before.value} --> {after.value}: {why.value}" for (before, why), after in transitions.items())
    ends = (f"    {state.value} --> [*]" for state in _ENDS)
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {_BEGINS.value}", *rows, *ends, "```"]) + "\n"


DIAGRAM = Made(PAGE, re.compile(r"```mermaid\nstateDiagram-v2\n(?:.*\n)+?```\n"), diagram)
