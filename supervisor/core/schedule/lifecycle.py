"""The states of one engine, as a table.

Rule 1: a state changes only through `step`; a pair that is not in the table is a bug, not a case to handle.
Rule 2: RESERVED and STOPPING are states of their own: an engine that is being prepared or is going away can
        neither be given to a request nor be forgotten.
Rule 3: an engine's number dies with it. BACKOFF is what is left of a crashed one; the retry is a new engine.
The table in `docs/architecture.md` is made from `TRANSITIONS`.
"""

from __future__ import annotations

import enum


class EngineState(enum.Enum):
    """The state of one engine in its life."""

    RESERVED = "reserved"  # wanted: it waits for its room, or is being prepared; no process yet
    LOADING = "loading"  # the process is spawned and loads
    READY = "ready"
    DRAINING = "draining"  # no new leases; ends with the last one
    STOPPING = "stopping"
    STOPPED = "stopped"  # gone as wanted
    FAILED = "failed"  # gone with a reason
    BACKOFF = "backoff"  # gone with a reason, wanted, and tried again after a while


class Trigger(enum.Enum):
    """An event in the life of an engine."""

    SPAWNED = "spawned"
    BECAME_READY = "became ready"
    DRAIN = "drain"
    RESUME = "resume"  # nobody needs its room any more
    STOP = "stop"
    CANCEL = "cancel"  # nobody wants it, and nothing was started yet
    EXITED = "exited"  # as it was told to, by itself, or it never came up
    LOST = "lost"  # ended because it hung
    BACK_OFF = "back off"
    RETRY = "retry"


_S, _T = EngineState, Trigger

TRANSITIONS: dict[tuple[EngineState, Trigger], EngineState] = {
    (_S.RESERVED, _T.SPAWNED): _S.LOADING,
    (_S.RESERVED, _T.CANCEL): _S.STOPPED,
    (_S.RESERVED, _T.STOP): _S.STOPPING,
    (_S.RESERVED, _T.EXITED): _S.FAILED,
    (_S.LOADING, _T.BECAME_READY): _S.READY,
    (_S.LOADING, _T.STOP): _S.STOPPING,
    (_S.LOADING, _T.EXITED): _S.FAILED,
    (_S.READY, _T.DRAIN): _S.DRAINING,
    (_S.READY, _T.STOP): _S.STOPPING,
    (_S.READY, _T.EXITED): _S.FAILED,
    (_S.DRAINING, _T.RESUME): _S.READY,
    (_S.DRAINING, _T.STOP): _S.STOPPING,
    (_S.DRAINING, _T.EXITED): _S.STOPPED,
    (_S.STOPPING, _T.EXITED): _S.STOPPED,
    (_S.STOPPING, _T.LOST): _S.FAILED,
    (_S.FAILED, _T.BACK_OFF): _S.BACKOFF,
    (_S.BACKOFF, _T.RETRY): _S.RESERVED,
    (_S.BACKOFF, _T.CANCEL): _S.FAILED,
}

STARTING = frozenset({_S.RESERVED, _S.LOADING})
LEAVING = frozenset({_S.DRAINING, _S.STOPPING})


class ImpossibleTransition(Exception):
    """The scheduler asked for a step that the table does not have: a bug of ours."""


def step(state: EngineState, trigger: Trigger) -> EngineState:
    """Return the state after `trigger`. Raise ImpossibleTransition for a pair outside the table."""
    try:
        return TRANSITIONS[state, trigger]
    except KeyError:
        raise ImpossibleTransition(f"{state.value} cannot take '{trigger.value}'") from None


def restart_delay(attempt: int, base: float, longest: float) -> float:
    """Return the seconds before the restart after the `attempt`-th failure in a row: 0, base, 2·base, … `longest`."""
    return 0.0 if attempt <= 1 else min(longest, base * 2.0 ** min(attempt - 2, 64))
