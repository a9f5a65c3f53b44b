"""What a node tells of a model that runs there, from its scheduler's view of it."""

from __future__ import annotations

from typing import Final

from supervisor.core.cluster.messages import Running
from supervisor.core.schedule.lifecycle import STARTING, EngineState
from supervisor.core.schedule.view import ModelView

_LONGEST_S: Final = 86_400.0
_SLOTS: Final = 4  # of an engine that is loading: llama-server's own default


def running_of(view: ModelView, now: float) -> Running | None:
    """Return what is told of a model; None where it has no engine that is ready or comes up, or is to leave.

    now: seconds of the scheduler's clock.
    """
    if view.leaves:
        return None
    ready = [one for one in view.engines if one.state is EngineState.READY]
    if ready:
        slots = sum(one.slots for one in ready)
        has_room = not view.waiting and sum(one.leases for one in ready) < slots
        wait = 0.0 if has_room else _wait(view, slots, now)
        return Running("ready", slots, view.leases, view.waiting, wait, _told(view.load_seconds))
    if view.state in STARTING:
        wait = _told(view.load_seconds + _wait(view, _SLOTS, now))
        return Running("loading", 0, view.leases, view.waiting, wait, _told(view.load_seconds))
    return None


def _wait(view: ModelView, slots: int, now: float) -> float:
    """Return the seconds that one more request waits for a slot: by what requests took of late, and in any case as
    long as the first of those that wait now has waited.
    """
    foretold = (view.waiting + 1) / max(1, slots) * (view.lease_seconds or 0.0)
    waited = 0.0 if view.waits_since is None else now - view.waits_since
    return _told(max(foretold, waited))


def _told(seconds: float) -> float:
    return round(min(max(0.0, seconds), _LONGEST_S), 1)
