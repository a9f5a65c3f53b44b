"""Decide when a node leaves a NATS server that is there but decides nothing any more, as it has lost the others.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LEAST_S: Final = 10.0
"""Seconds for which a server may decide nothing: an election takes about as long, and claims last longer."""

MOST_S: Final = 60.0
"""The same, where others have not decided anything either."""

ASK_S: Final = 10.0
"""Seconds after which a server is asked that has had nothing to decide."""


@dataclass(slots=True)
class Trust:
    """What is known of the server that a node is connected to."""

    _patience_s: float = LEAST_S
    _fails_since: float | None = None
    _noted_at: float = -math.inf

    def connected(self) -> None:
        """Begin anew: it may be another server."""
        self._fails_since = None

    def note(self, now: float, *, decides: bool) -> None:
        """Take note of what became of something that only a server with a leader can do."""
        self._noted_at = now
        if decides:
            self._fails_since, self._patience_s = None, LEAST_S
        elif self._fails_since is None:
            self._fails_since = now

    def is_to_be_asked(self, now: float) -> bool:
        """Return whether to find out: nothing is known of late, or it has failed."""
        return self._fails_since is not None or now - self._noted_at >= ASK_S

    def ends(self, now: float) -> bool:
        """Return whether to leave the server now. If so, the next one is given twice the time."""
        if self._fails_since is None or now - self._fails_since < self._patience_s:
            return False
        self._fails_since, self._patience_s = None, min(2 * self._patience_s, MOST_S)
        return True
