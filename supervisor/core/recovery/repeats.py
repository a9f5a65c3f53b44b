"""Filter text behind a call that the engine has parsed: the same call in it is dropped, all else is text."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.recovery.tally import Tally
from supervisor.core.toolcalls import CallArguments, CallEnd, CallStart, Channel, Dropped, Event, Recoverer, Text


class Repeats:
    """A filter for text.

    Args:
        recoverer: reads it; gives calls out whole.
        is_given: whether the client has that call.
    """

    def __init__(self, recoverer: Recoverer, is_given: Callable[[str, str], bool], tally: Tally) -> None:
        self._recoverer = recoverer
        self._is_given = is_given
        self._tally = tally
        self._markup: list[Dropped] = []  # not known yet whose
        self._name = ""
        self._arguments = ""
        self._repeated = False  # the call before was one that the client has

    def feed(self, channel: Channel, text: str) -> list[Event]:
        """Return the events that can go on."""
        return self._sorted(self._recoverer.feed(channel, text))

    def finish(self, reason: str | None) -> list[Event]:
        """Return the rest."""
        return [*self._sorted(self._recoverer.finish(reason)), *self._release_markup()]

    def _sorted(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Dropped):
                self._markup.append(event)
            elif isinstance(event, CallStart):
                self._name, self._arguments = event.name, ""
            elif isinstance(event, CallArguments):
                self._arguments += event.text
            elif isinstance(event, CallEnd):
                own = self._markup[-1:]
                self._markup = self._markup[:-1]
                out += self._release_markup()
                self._repeated = self._is_given(self._name, self._arguments)
                self._tally.repeated += self._repeated
                self._markup = own
                out += self._release_markup()
            else:
                out += self._release_markup() if isinstance(event, Text) else []
                out.append(event)
        return out

    def _release_markup(self) -> list[Event]:
        markup, self._markup = self._markup, []
        return list(markup) if self._repeated else [Text(one.channel, one.text) for one in markup]
