"""Tell when an engine holds more of the host's memory than planned."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.memory import Growth

_SLACK = 256 << 20  # the allocator's own, and what small models take beside every estimate


def allowed_bytes(planned: int, growth: Iterable[Growth], share: float) -> int | None:
    """Return the bytes that an engine may hold of the host's memory; None without a limit.

    Args:
        planned: what it was planned to hold from the start.
        growth: what may come while it serves.
        share: how far beyond all that it may go.
    """
    total = planned
    for one in growth:
        if one.max_bytes is None:
            return None
        total += one.max_bytes
    return int(total * (1 + share)) + _SLACK


def outgrown(held: int, allowed: int, first: int, share: float) -> bool:
    """Return whether an engine holds too much. `first`: its bytes when it became ready, in case the plan was wrong."""
    return held > max(allowed, int(first * (1 + share)) + _SLACK)
