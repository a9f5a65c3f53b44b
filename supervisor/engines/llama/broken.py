"""Learn from an engine's answers that its device has failed, and from its log why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from supervisor.core.engine_output.broken import cause_of_break, tells_of_break
from supervisor.core.engine_output.failures import Cause

_SAID_BEFORE = 20  # lines before the one that says that the device has failed
_REASON_S = 2.0  # that line may come after the answer that says so, and not at all


class BreakWatch:
    """Whether the device of one engine has failed.

    Args:
        tail: gives the newest lines of the engine's log.
        names: the devices' names for people, by the engine's.

    Attributes:
        found: done when it has failed, with the cause.
    """

    def __init__(self, tail: Callable[[int], tuple[str, ...]], names: Mapping[str, str]) -> None:
        self.found: asyncio.Future[Cause] = asyncio.get_running_loop().create_future()
        self._tail = tail
        self._names = names
        self._answered = ""
        self._told = False

    def note_line(self, line: bytes) -> None:
        """Take a line that was written to the log. It decides nothing, as clients can have it written."""
        if tells_of_break(line):
            self._told = True
            if self._answered:
                self._conclude()

    def note_answer(self, message: str) -> None:
        """Take the error of a failed device from an answer. `found` follows as soon as the log tells why."""
        self._answered = self._answered or message
        if self._told:
            self._conclude()
        else:
            asyncio.get_running_loop().call_later(_REASON_S, self._conclude)

    def _conclude(self) -> None:
        if not self.found.done():
            lines = (*self._tail(_SAID_BEFORE), self._answered)
            self.found.set_result(cause_of_break(lines).named(self._names))
