"""What a model's answers held of tool calls, counted since the daemon started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from supervisor.core.recovery import Tally


@dataclass
class Counts:
    """The counters of one model since the daemon started.

    Attributes:
        answers: that were watched. native: calls that the engine had parsed. recovered, repaired: calls found in text,
            by dialect. left_as_text: what began like a call, by reason. repeated: calls that came twice and were given
            once. saved: answers whose calls were saved from an error of the engine's parser. failed: answers that
            such an error ended. swallowed: answers of which the engine's parser gave out less than the model wrote.
    """

    answers: int = 0
    native: int = 0
    recovered: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    left_as_text: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    saved: int = 0
    failed: int = 0
    swallowed: int = 0

    def add(self, tally: Tally, *, failed: bool) -> None:
        """Count one answer."""
        self.answers += 1
        self.native += tally.native
        self.repeated += tally.repeated
        self.saved += tally.saved
        self.failed += failed
        self.swallowed += tally.swallowed
        self.recovered.update(tally.recovered)
        self.repaired.update({dialect: count for dialect, count in tally.repaired.items() if count})
        self.left_as_text.update(tally.left_as_text)

    def to_json(self) -> dict[str, object]:
        """Return the counters as GET /api/v1/toolcalls shows them."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class CallCounts:
    """The counters by model."""

    counts: Mapping[str, Counts]

    def limited(self, sees: Callable[[str], bool]) -> CallCounts:
        """Return those of models that are seen."""
        return CallCounts({model: counts for model, counts in self.counts.items() if sees(model)})

    def to_json(self) -> dict[str, object]:
        """Return them as GET /api/v1/toolcalls shows them."""
        return {"models": {model: counts.to_json() for model, counts in self.counts.items()}}
