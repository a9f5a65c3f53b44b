"""Guard the arguments of a call that the engine has parsed: JSON text in pieces, checked to be JSON.

The engine hands on what the model wrote: line ends inside of strings, and brackets that never close, come through.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from supervisor.core.text.foreignjson import parse

_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MOST_VALUES: Final = 1 << 13
_SEPARATORS: Final = (",", "[", "{")  # there are no more values than these, and one
_PAIRS: Final = {"{": "}", "[": "]"}


class ArgumentsGuard:
    """The guard of one call's arguments.

    Attributes:
        text: all of it so far, as it was given out.
    """

    def __init__(self) -> None:
        self._given: list[str] = []
        self._open: list[str] = []  # closing brackets that are due, the innermost last
        self._in_string = False
        self._escaped = False

    @property
    def text(self) -> str:
        """Text that has been given out."""
        return "".join(self._given)

    def feed(self, piece: str) -> str:
        """Return the piece, with control characters inside of strings escaped."""
        out: list[str] = []
        for char in piece:
            if self._in_string:
                out.append(_escaped(char))
                self._inside(char)
                continue
            out.append(char)
            if char == '"':
                self._in_string = True
            elif char in _PAIRS:
                self._open.append(_PAIRS[char])
            elif self._open and char == self._open[-1]:
                self._open.pop()
        fixed = "".join(out)
        self._given.append(fixed)
        return fixed

    def closing(self) -> str:
        """Return what is missing at the end of a call that the model thought complete; empty where nothing helps.

        Only brackets are added, never the end of a string: what a string was to hold cannot be known.
        """
        if self._in_string:
            return ""
        missing = "".join(reversed(self._open)) if self.text.strip() else "{}"
        if missing and is_object(self.text + missing):
            self._given.append(missing)
            return missing
        return ""

    def is_whole(self) -> bool:
        """Return whether the text is a JSON object."""
        return is_object(self.text)

    def _inside(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False


def is_object(text: str) -> bool:
    """Return whether this is the text of a JSON object. Nothing is built of it, whatever it holds."""
    try:
        _object.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


class Values:
    """A reader of the JSON texts of one request or answer, within some milliseconds together."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def of(self, text: str) -> object:
        """Return the value of a JSON text. Raise ValueError if it is none, or would take too long with those before."""
        self._left -= sum(map(text.count, _SEPARATORS))
        if self._left < 0:
            raise ValueError(f"more than {_MOST_VALUES} values")
        value: object = parse(text)
        return value


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if _CONTROL.match(char) else char
