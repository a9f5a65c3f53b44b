"""The record of what recovery did in one answer, for counters and the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from supervisor.core.toolcalls.events import CallEnd, CallStart, Dropped, Event, LeftAsText


@dataclass(slots=True)
class Tally:
    """Counts by dialect, and what the client never saw.

    Attributes:
        recovered: calls, by dialect; those of `repaired` among them.
        left_as_text: what began like a call, by reason.
        native: calls that the engine had parsed.
        repeated: calls that came both as text and parsed, and were given once.
        saved: an error of the engine's parser was turned into an answer.
        swallowed: the engine's parser gave out less than the model wrote.
        dropped: the markup, as the model wrote it.
    """

    recovered: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    left_as_text: Counter[str] = field(default_factory=Counter)
    native: int = 0
    repeated: int = 0
    saved: bool = False
    swallowed: bool = False
    dropped: list[str] = field(default_factory=list)
    _dialect: str = ""

    def take(self, events: Iterable[Event]) -> None:
        """Count the events of one recoverer."""
        for event in events:
            if isinstance(event, CallStart):
                self._dialect = event.dialect
                self.recovered[event.dialect] += 1
            elif isinstance(event, CallEnd):
                self.repaired[self._dialect] += event.repaired
            elif isinstance(event, LeftAsText):
                self.left_as_text[event.why] += 1
            elif isinstance(event, Dropped):
                self.dropped.append(event.text)
