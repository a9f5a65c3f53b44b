"""Say why an engine's start has failed, by how it ended and what it said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.core.engine_output.failures import cause_of
from supervisor.core.engine_output.statelines import telling_lines
from supervisor.errors import EngineStalled, EngineStartFailed
from supervisor.system.child import ExitStatus


@dataclass(frozen=True, slots=True)
class Stalled:
    """The end of a start that showed no sign of life for so many seconds."""

    seconds: float


def failed_start(outcome: Stalled | ExitStatus, said: Sequence[str], names: Mapping[str, str]) -> EngineStartFailed:
    """Return the error of a start.

    Args:
        outcome: how it ended.
        said: the lines of this start.
        names: the engine's name of a device → the plan's, where they differ.
    """
    lines = telling_lines(said)
    if isinstance(outcome, Stalled):
        return EngineStalled(
            f"The engine showed no sign of life for {outcome.seconds:.0f} s while starting and was ended. Look at "
            "its log; a very slow disk needs a larger engine.stall_timeout.",
            log_lines=lines,
        )
    message = f"the engine ended before it was ready: {outcome}"
    if lines:
        message += f"; it said: {lines[0]}"
    cause = cause_of(said, code=outcome.code, signal=outcome.signal)
    if cause is None:
        return EngineStartFailed(message, log_lines=lines)
    cause = cause.named(names)
    return EngineStartFailed(
        f"{cause.message} ({message})", log_lines=lines, code=cause.code, device=cause.device, lacking=cause.lacking
    )
