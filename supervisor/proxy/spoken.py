"""Answers of a chat that are said in another API's form, and not looked into."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.core.recovery import RecoveredStream
from supervisor.core.recovery.chunks import Untouched
from supervisor.core.recovery.stream import Ways
from supervisor.core.recovery.voices import Voice
from supervisor.core.stream.filter import StreamFilter


class Spoken:
    """One request's answer.

    Args:
        new_voice: of the client's API.

    Attributes:
        verbatim: chunks of a chat are what the client wants.
    """

    verbatim = False

    def __init__(self, new_voice: Callable[[], Voice]) -> None:
        self._new_voice = new_voice

    def stream(self, relay: StreamFilter) -> RecoveredStream:
        """The way of a streamed answer's bytes; anew for every try."""
        return RecoveredStream(relay, Untouched(), time.monotonic, Ways(voice=self._new_voice()))

    def said(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """A whole answer in the client's form."""
        return self._new_voice().whole(answer)

    answer = said
