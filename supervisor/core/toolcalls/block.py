"""What a dialect's reader is, and what it works with.

It gets the text, the tools offered, the options and the markers of all dialects, and has a writer for the arguments of
each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from supervisor.core.toolcalls.jsontext import Json, dumps, quote
from supervisor.core.toolcalls.options import Options
from supervisor.core.toolcalls.source import CompleteCall, Literals, Piece, Source, Unknown, Wait
from supervisor.core.toolcalls.tools import Tool, Tools

NOWHERE: Final = Tool("")
"""Stands for a tool that was not offered; nothing of its calls is given out."""


@dataclass(frozen=True, slots=True)
class Block:
    """One attempt to read calls.

    Attributes:
        registry: the dialects that are looked for.
        may_stream: long arguments may be given out while they arrive.
        whole: only whole messages count here, so a call needs its arguments and no doubt.
    """

    src: Source
    tools: Tools
    options: Options
    registry: Markers
    may_stream: bool = False
    whole: bool = False

    def resolve(self, written: str) -> Wait[Tool]:
        """Return the tool of that name; if none was offered, signal it and return NOWHERE."""
        tool = self.tools.find(written)
        if tool is None:
            yield Unknown()
            return NOWHERE
        return tool


class Reader(Protocol):
    """The function that reads calls; the source stands behind `opener`.

    Yields signals (see `source`) and returns whether what it has read is calls. If it is not, the source may stand
    anywhere.
    """

    def __call__(self, block: Block, opener: str) -> Wait[bool]: ...


class NamedReader(Protocol):
    """The function that reads a call with nothing before the tool's name; the source stands at the name."""

    def __call__(self, block: Block) -> Wait[bool]: ...


class OpenPattern(Protocol):
    """Openers of which there are too many for a list, and the reader of the calls behind them."""

    @property
    def first(self) -> str:
        """First character of each of these openers."""

    def opener(self, src: Source) -> Wait[str]:
        """Return the opener at the reading position, or nothing, without moving."""

    def is_opener(self, text: str) -> bool:
        """Return whether `opener` has returned this text."""

    def read(self, block: Block, opener: str) -> Wait[bool]:
        """Read calls behind the opener; see `Reader`."""


class Markers(Protocol):
    """The markers of all dialects that are looked for; `registry.Registry` says what each is."""

    def __hash__(self) -> int: ...
    @property
    def openers(self) -> Mapping[str, Reader]: ...
    @property
    def after_name(self) -> Mapping[str, NamedReader]: ...
    @property
    def closers(self) -> frozenset[str]: ...
    @property
    def ends(self) -> frozenset[str]: ...
    @property
    def anywhere_literals(self) -> Literals: ...
    @property
    def after_name_literals(self) -> Literals: ...
    @property
    def closer_literals(self) -> Literals: ...
    @property
    def end_literals(self) -> Literals: ...


class CallWriter:
    """The writer of one call: whole once it is complete, or in pieces when a string in it grows long.

    Args:
        id: the model's own id of the call, if its format has one.
    """

    def __init__(self, block: Block, tool: Tool, dialect: str, id: str | None = None) -> None:
        self.tool = tool
        self.dialect = dialect
        self.id = id
        self.repaired = False
        self.brackets = False
        self.started = False
        self.upto = -1  # what of the text has been written; -1: all that has been read
        self._src = block.src
        limit = block.options.pieces_after
        self._limit = limit if block.may_stream and tool is not NOWHERE else None
        self._items: dict[str, str] = {}
        self._parts: list[str] = []
        self._size = 0
        self._key = ""
        self._streaming = False  # the string that is being written is on its way already

    def wait(self) -> None:
        """Give nothing out before the call is complete."""
        self._limit = None

    def value(self, key: str, value: Json) -> Wait[None]:
        """Write a whole argument. The last one of a name counts, unless the first has been given out already."""
        if not self.started:
            self._items[key] = dumps(value)
        elif key not in self._items:
            yield self._piece(f"{self._separator()}{quote(key)}: {dumps(value)}")
            self._items[key] = ""

    def begin_string(self, key: str) -> None:
        """Begin a string argument, whose parts follow."""
        self._key, self._parts, self._size, self._streaming = key, [], 0, False

    def string_part(self, text: str) -> Wait[None]:
        """Write a part of the string: JSON text, without quotes."""
        if self._streaming:
            yield self._piece(text)
            return
        self._parts.append(text)
        self._size += len(text)
        if self._limit is not None and self._size > self._limit and self._key not in self._items:
            begun = f'{self._separator()}{quote(self._key)}: "{"".join(self._parts)}'
            if not self.started:
                begun = "{" + ", ".join(f"{quote(name)}: {item}" for name, item in self._items.items()) + begun
            self._parts.clear()
            self.started = self._streaming = True
            yield self._piece(begun)

    def end_string(self) -> Wait[None]:
        """End the string argument."""
        text = f'"{"".join(self._parts)}"'
        if self._streaming:
            yield self._piece('"')
            self._items[self._key] = ""
        elif not self.started:
            self._items[self._key] = text
        elif self._key not in self._items:
            yield self._piece(f"{self._separator()}{quote(self._key)}: {text}")
            self._items[self._key] = ""

    def end(self) -> Wait[None]:
        """End the call, which is complete."""
        if self.started:
            yield self._piece("}", last=True)
        elif self.tool is not NOWHERE:
            text = "{" + ", ".join(f"{quote(key)}: {item}" for key, item in self._items.items()) + "}"
            yield CompleteCall(self.tool.name, text, self.dialect, self.id, self.repaired, self.brackets)

    def broken(self) -> Wait[bool]:
        """Give the call up, since the text ended or is no call.

        Return whether a piece had been given out, so that it counts.
        """
        if self.started:
            yield self._piece("", last=True, complete=False)
        return self.started

    def item(self, key: str) -> str:
        """Return an argument's JSON text; empty if there is none, or it has been given out."""
        return self._items.get(key, "")

    def put_back(self, key: str, text: str) -> None:
        """Set an argument's JSON text, as `item` gave it."""
        if not self.started:
            self._items[key] = text

    def is_schema(self) -> bool:
        """Return whether these arguments are a JSON schema instead of a call."""
        described = self._items.get("type") == '"object"' and self._items.get("properties", "").startswith("{")
        return described and not {"type", "properties"} <= self.tool.types.keys()

    def _separator(self) -> str:
        return ", " if self._items else ""

    def _piece(self, text: str, *, last: bool = False, complete: bool = True) -> Piece:
        upto = self._src.pos if self.upto < 0 else self.upto
        return Piece(self.tool.name, text, self.dialect, upto, self.id, last, complete, self.repaired, self.brackets)
