"""Recover one choice of a chat's answer: deltas of the engine in, deltas for the client out.

Calls in the text become `tool_calls`; those that the engine has parsed go on as they are. A call that comes both ways
is given once: with the one that came first, for what has been given out cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias, cast

from supervisor.core.recovery.arguments import ArgumentsGuard, Values
from supervisor.core.recovery.repeats import Repeats
from supervisor.core.recovery.tally import Tally
from supervisor.core.recovery.typed import CallPart, Delta, Function
from supervisor.core.toolcalls import CallArguments, CallEnd, CallStart, Channel, Event, Recoverer, Text
from supervisor.core.toolcalls.recoverer import DONE
from supervisor.core.toolcalls.whole import Answer

_Text: TypeAlias = Literal["content", "reasoning_content"]
_FIELDS: Final[Mapping[Channel, _Text]] = {"reasoning": "reasoning_content", "content": "content"}


class Native:
    """A call that the engine has parsed.

    Attributes:
        held: its parts, while it may turn out to be one that has been given already; None once they go on.
    """

    def __init__(self, index: int, *, hold: bool) -> None:
        self.index = index
        self.name = ""
        self.arguments = ArgumentsGuard()
        self.held: list[CallPart] | None = [] if hold else None


class ChoiceRecovery:
    """The recovery of one choice.

    Args:
        new_recoverer: makes the recoverer of its text.
        make_id: an id for a call that the engine gave none.
        tally: counts what happens.
        has_role: the client knows that an assistant speaks.
    """

    def __init__(
        self,
        new_recoverer: Callable[[], Recoverer],
        make_id: Callable[[], str],
        tally: Tally,
        *,
        has_role: bool = False,
    ) -> None:
        self._new_recoverer = new_recoverer
        self._make_id = make_id
        self._tally = tally
        self._recoverer = new_recoverer()
        self._repeats: Repeats | None = None
        self._answer = Answer()
        self._natives: dict[int, Native] = {}
        self._current: Native | None = None
        self._next = 0  # index of the next call
        self._has_role = has_role
        self.finished = False
        self.has_said = False

    def feed(self, delta: Delta) -> list[Delta]:
        """Return the deltas that this one makes certain."""
        out: list[Delta] = []
        plain = self._plain(delta)
        if plain:
            out.append(plain)
        for channel, key in _FIELDS.items():
            text = delta.get(key)
            if isinstance(text, str) and text:
                out += self._behind_native()
                out += self._said(self._text(channel, text))
        for part in delta.get("tool_calls") or ():
            out += self._native(part)
        self.has_said |= len(out) > bool(plain)
        return joined(out)

    def finish(self, reason: str | None) -> tuple[list[Delta], str | None]:
        """Return the rest, and the finish reason for the client.

        Args:
            reason: the engine's; None where it broke off.
        """
        self.finished = True
        out = self._end_call(done=reason in DONE)
        out += self._said(self._recoverer.finish(reason))
        if self._repeats is not None:
            out += self._said(self._repeats.finish(reason))
        if reason == "stop" and self.has_calls():
            reason = "tool_calls" if self.is_whole() else "length"
        return joined(out), reason

    def has_calls(self) -> bool:
        """Return whether a call has been given out."""
        return self._next > 0

    def is_whole(self) -> bool:
        """Return whether every call that has been given out can be carried out."""
        given = [native for native in self._natives.values() if native.held is None]
        return all(call.complete for call in self._answer.calls) and all(one.arguments.is_whole() for one in given)

    # -- text ----------------------------------------------------------------------------------------------------------

    def _plain(self, delta: Delta) -> Delta:
        """Return the part of a delta that is neither text nor a call; a role only once."""
        known = {"content", "reasoning_content", "tool_calls", *({"role"} if self._has_role else ())}
        plain = cast(Delta, {key: value for key, value in delta.items() if key not in known})
        if "role" in plain:
            self._has_role = True
            if "content" in delta and not delta["content"]:
                plain["content"] = delta["content"]
        return plain

    def _text(self, channel: Channel, text: str) -> list[Event]:
        if self._repeats is not None:
            return self._repeats.feed(channel, text)
        return self._recoverer.feed(channel, text)

    def _said(self, events: list[Event]) -> list[Delta]:
        self._tally.take(events)
        out: list[Delta] = []
        for event in events:
            if isinstance(event, Text):
                out.append(_said_in(event.channel, event.text))
            elif isinstance(event, CallStart):
                out.append({"tool_calls": [_started(event.index, event.id, event.name)]})
                self._next = event.index + 1
            elif isinstance(event, CallArguments):
                out.append({"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]})
        self._answer.take(event for event in events if isinstance(event, (CallStart, CallArguments, CallEnd)))
        return out

    # -- calls that the engine has parsed ------------------------------------------------------------------------------

    def _native(self, part: CallPart) -> list[Delta]:
        out: list[Delta] = []
        index = part.get("index", 0)
        native = self._natives.get(index)
        first = native is None
        if native is None:
            out += self._end_call(done=True)
            out += self._said(self._recoverer.structured())
            native = self._begun(index)
        function = part.get("function") or {}
        native.name += function.get("name") or ""
        piece = native.arguments.feed(function.get("arguments") or "")
        given = self._part(native, part, piece, first=first)
        if native.held is None:
            out.append({"tool_calls": [given]})
        else:
            native.held.append(given)
        return out

    def _begun(self, index: int) -> Native:
        self._tally.native += 1
        hold = bool(self._answer.calls)
        self._current = native = self._natives[index] = Native(-1 if hold else self._next, hold=hold)
        self._next += not hold
        return native

    def _part(self, native: Native, part: CallPart, piece: str, *, first: bool) -> CallPart:
        """Return a part for the client: the engine's, with our index and arguments that can be read."""
        function: Function = {**(part.get("function") or {}), "arguments": piece}
        given: CallPart = {**part, "index": native.index, "function": function}
        if first and not given.get("id"):
            given["id"] = self._make_id()
        return given

    def _end_call(self, *, done: bool) -> list[Delta]:
        """End the call that was being parsed; `done`: the model was done, too."""
        native, self._current = self._current, None
        if native is None:
            return []
        closing = native.arguments.closing() if done else ""
        out: list[Delta] = []
        if native.held is not None:
            if any(
                same_call(native.name, native.arguments.text, call.name, call.arguments) for call in self._answer.calls
            ):
                self._tally.repeated += 1
                return []
            native.index, self._next = self._next, self._next + 1
            for part in native.held:
                out.append({"tool_calls": [{**part, "index": native.index}]})
            native.held = None
        if closing:
            out.append({"tool_calls": [{"index": native.index, "function": {"arguments": closing}}]})
        self._listen_for_repeats()
        return out

    def _behind_native(self) -> list[Delta]:
        """End a complete call, since text comes behind it."""
        over = self._current is not None and self._current.arguments.is_whole()
        return self._end_call(done=True) if over else []

    def _listen_for_repeats(self) -> None:
        """From now on drop a call in the text that has been given already; all else is text."""
        if self._repeats is None:
            self._repeats = Repeats(self._new_recoverer(), self._is_given, self._tally)

    def _is_given(self, name: str, arguments: str) -> bool:
        return any(same_call(name, arguments, one.name, one.arguments.text) for one in self._natives.values())


def same_call(name: str, arguments: str, other_name: str, other_arguments: str) -> bool:
    """Return whether two calls are the same, however their JSON is written."""
    if name != other_name:
        return False
    if arguments == other_arguments:
        return True
    values = Values()
    try:
        return bool(values.of(arguments or "{}") == values.of(other_arguments or "{}"))
    except ValueError:
        return False


def _said_in(channel: Channel, text: str) -> Delta:
    return {"content": text} if channel == "content" else {"reasoning_content": text}


def _started(index: int, identity: str, name: str) -> CallPart:
    return {"index": index, "id": identity, "type": "function", "function": {"name": name, "arguments": ""}}


def joined(deltas: list[Delta]) -> list[Delta]:
    """Return the same in as few deltas as possible.

    What came together stays together, a call's start with its arguments.
    """
    out: list[Delta] = []
    for delta in deltas:
        last = out[-1] if out else None
        if last is None:
            out.append(delta)
        elif "tool_calls" in last and "tool_calls" in delta:
            _join_calls(last["tool_calls"], delta["tool_calls"])
        elif "tool_calls" not in last and "tool_calls" not in delta and not _texts(last):
            out[-1] = {**last, **delta}
        else:
            out.append(delta)
    return out


def _texts(delta: Delta) -> bool:
    return any(delta.get(key) for key in _FIELDS.values())


def _join_calls(calls: list[CallPart], more: list[CallPart]) -> None:
    """Append pieces of calls; pieces of one call become one."""
    for part in more:
        last = calls[-1]
        if part["index"] == last["index"] and "id" not in part:
            pieces = last["function"].get("arguments", "") + part["function"].get("arguments", "")
            calls[-1] = {**last, "function": {**last["function"], "arguments": pieces}}
        else:
            calls.append(part)
