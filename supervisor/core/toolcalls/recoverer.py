"""Recover tool calls that arrive as text, with one `Recoverer` per choice of an answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from supervisor.core.toolcalls.automaton import Automaton, Item
from supervisor.core.toolcalls.dialects import REGISTRY
from supervisor.core.toolcalls.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Channel,
    Dropped,
    Event,
    LeftAsText,
    Text,
)  # fmt: skip
from supervisor.core.toolcalls.options import Options
from supervisor.core.toolcalls.registry import Registry
from supervisor.core.toolcalls.source import CompleteCall, Piece
from supervisor.core.toolcalls.think import ThinkSplitter
from supervisor.core.toolcalls.tools import Tools

DONE: Final = frozenset({"stop", "tool_calls", "function_call"})
"""Finish reasons of a model that was done. After any other, nothing unfinished is completed."""

DEFAULTS: Final = Options()


def counted_ids() -> Callable[[], str]:
    """Return a maker of ids for tests and tools: `call_0`, `call_1`, … A server needs ids that are never used twice."""
    numbers = count()
    return lambda: f"call_{next(numbers)}"


def tools_of(tools: object, tool_choice: object = None, options: Options = DEFAULTS) -> Tools:
    """Return the tools of a request, made once for all its answers, because thousands of them take time."""
    return Tools(tools, tool_choice, coerce=options.coerce, forward_unknown=options.forward_unknown)


class Recoverer:
    """The converter of one answer's text into text and calls.

    However the text is cut into pieces, the events say the same.

    Args:
        tools: those of the request, or what `tools_of` made of them. None or an empty list: everything is handed on
            untouched.
        tool_choice: that of the request.
        options: see `Options`.
        make_id: gives each call without an id of its own a new one.
        registry: the dialects that are looked for.
    """

    def __init__(
        self,
        tools: object,
        tool_choice: object = None,
        options: Options = DEFAULTS,
        make_id: Callable[[], str] | None = None,
        registry: Registry = REGISTRY,
    ) -> None:
        self._options = options
        self._make_id = make_id or counted_ids()
        self._tools = tools if isinstance(tools, Tools) else tools_of(tools, tool_choice, options)
        self._passing = not (options.enabled and self._tools)
        self._events: list[Event] = []
        self._late: list[Event] = []  # with `tool_calls_last`
        self._calls = 0
        self._open = False  # a call is being given out in pieces
        self._muted = False  # a call that is not wanted is
        self._has_content = False
        self._ids: set[str] = set()
        self._reasoning = Thoughts(self._tools, options, registry)
        self._content = Automaton("content", self._tools, options, registry, may_stream=True)
        self._splitter = ThinkSplitter(
            registry,
            think=self._think,
            content=self._answer,
            drop=self._drop,
            closed=self._close_thoughts,
            is_open=options.think_open,
        )

    @property
    def calls(self) -> int:
        """Number of calls that have begun."""
        return self._calls

    def feed(self, channel: Channel, text: str) -> list[Event]:
        """Return the events that `text`, the next piece of that channel, makes certain."""
        if self._passing:
            return [Text(channel, text)] if text else []
        if channel == "reasoning":
            self._take(self._reasoning.feed(text))
        else:
            self._splitter.feed(text)
        return self._taken()

    def structured(self) -> list[Event]:
        """Return what is held as text, since the server has parsed a call itself, and hand everything on from here."""
        if not self._passing:
            self._splitter.finish()
            self._close_thoughts()
            self._take(self._content.finish(cut=True))
            self._passing = True
        return self._taken()

    def finish(self, reason: str | None) -> list[Event]:
        """Return the rest, when the answer is over.

        Args:
            reason: the server's finish reason; see `DONE`.
        """
        if self._passing:
            return self._late_events()
        self._passing = True
        cut = reason not in DONE
        self._splitter.finish()
        promotes = self._options.think_calls and not self._has_content and not cut and not self._calls
        self._take(self._reasoning.finish(cut=cut, promotes=promotes))
        self._take(self._content.finish(cut=cut))
        return [*self._taken(), *self._late_events()]

    # -- where text goes -----------------------------------------------------------------------------------------------

    def _think(self, text: str) -> None:
        if self._options.split_think:
            self._take(self._reasoning.feed(text))
        else:
            self._events.append(Text("content", text))

    def _answer(self, text: str) -> None:
        if not self._has_content and text.strip():
            self._has_content = True
            self._close_thoughts()
        self._take(self._content.feed(text))

    def _drop(self, text: str) -> None:
        self._events.append(Dropped("content", text) if self._options.split_think else Text("content", text))

    def _close_thoughts(self) -> None:
        self._take(self._reasoning.close())

    # -- what comes out ------------------------------------------------------------------------------------------------

    def _take(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, CompleteCall):
                self._call(item)
            elif isinstance(item, Piece):
                self._piece(item)
            else:
                self._events.append(item)

    def _call(self, found: CompleteCall) -> None:
        if self._starts(found):
            self._events.append(CallArguments(self._calls - 1, found.arguments))
            self._events.append(CallEnd(self._calls - 1, True, found.repaired))

    def _piece(self, piece: Piece) -> None:
        if not self._open:
            self._open = True
            self._muted = not self._starts(piece)
        if not self._muted and piece.text:
            self._events.append(CallArguments(self._calls - 1, piece.text))
        if piece.last:
            self._open = False
            if not self._muted:
                self._events.append(CallEnd(self._calls - 1, piece.complete, piece.repaired))

    def _starts(self, call: CompleteCall | Piece) -> bool:
        if self._calls and not self._options.parallel_tool_calls:
            self._events.append(LeftAsText(call.name, "parallel"))
            return False
        identity = call.id if call.id and call.id not in self._ids else self._make_id()
        self._ids.add(identity)
        self._events.append(CallStart(self._calls, call.name, identity, call.dialect))
        self._calls += 1
        return True

    def _taken(self) -> list[Event]:
        events, self._events = merged(self._events), []
        if not self._options.tool_calls_last:
            return events
        self._late += [event for event in events if isinstance(event, (CallStart, CallArguments, CallEnd))]
        return [event for event in events if not isinstance(event, (CallStart, CallArguments, CallEnd))]

    def _late_events(self) -> list[Event]:
        late, self._late = self._late, []
        return late


class Thoughts:
    """Reasoning flows on as it comes, but calls at its end wait for how the turn ends.

    Only if the reasoning was never closed and nothing came after it, they are calls.
    """

    def __init__(self, tools: Tools, options: Options, registry: Registry) -> None:
        self._automaton: Automaton | None = Automaton("reasoning", tools, options, registry, may_stream=False)
        self._options = options
        self._waiting: list[Item] = []
        self._size = 0

    def feed(self, text: str) -> list[Item]:
        """Return the items that can go on."""
        if self._automaton is None:
            return [Text("reasoning", text)] if text else []
        return self._flow(self._automaton.feed(text))

    def close(self) -> list[Item]:
        """Return the rest as text, since the reasoning is over."""
        return self.finish(cut=True, promotes=False)

    def finish(self, *, cut: bool, promotes: bool) -> list[Item]:
        """Return the rest. If the turn ends here (`promotes`), calls at its end are calls."""
        if self._automaton is None:
            return []
        items = self._flow(self._automaton.finish(cut=cut))
        self._automaton = None
        waiting, self._waiting = self._waiting, []
        return items + (waiting if promotes else _as_text(waiting))

    def _flow(self, items: list[Item]) -> list[Item]:
        out: list[Item] = []
        for item in items:
            if isinstance(item, (Text, LeftAsText)) and not self._waiting:
                out.append(item)
                continue
            self._waiting.append(item)
            self._size += len(item.text) if isinstance(item, (Text, Dropped)) else 0
            solid = isinstance(item, Text) and not item.text.isspace()
            if solid or self._size > self._options.max_hold:
                out += _as_text(self._waiting)
                self._waiting, self._size = [], 0
        return out


def _as_text(items: list[Item]) -> list[Item]:
    """Return the same items with calls turned into text."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, Dropped):
            out.append(Text(item.channel, item.text))
        elif isinstance(item, CompleteCall):
            out.append(LeftAsText(item.name, "reasoning"))
        else:
            out.append(item)
    return out


def merged(events: list[Event]) -> list[Event]:
    """Return the same events with neighbouring text of a channel joined."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Text) and isinstance(last, Text) and event.channel == last.channel:
            out[-1] = Text(event.channel, last.text + event.text)
        else:
            out.append(event)
    return out
