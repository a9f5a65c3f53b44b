"""Fold the events of a streamed transcription.

Measured on llama-server b11434: the last event is what its single answer would have been.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LAST: Final = "transcript.text.done"


class TranscriptFold:
    """The collector of one answer's events."""

    def __init__(self) -> None:
        self._answer: Mapping[str, object] | None = None

    @property
    def done(self) -> bool:
        """True if the last event has come."""
        return self._answer is not None

    def feed(self, event: Mapping[str, object]) -> None:
        """Add one event."""
        if event.get("type") == _LAST:
            self._answer = event

    def response(self) -> object:
        """Return the answer."""
        return self._answer
