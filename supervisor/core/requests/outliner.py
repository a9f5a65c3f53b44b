"""Read a large request piece by piece, and note what its outline leaves out (`core/requests/outline.py`).

Nothing of the request is built, and every step is short: work is counted in strings, arrays and objects, as many for
each byte as an attacker can make them, not in bytes.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Final

from supervisor.core.requests.outline import MARK_BYTES, Outline, mark_of
from supervisor.errors import InvalidRequest, PayloadTooLarge

LONG: Final = 1024
"""Bytes from which on a text is left out."""

_FEW: Final = 64
"""Strings, arrays and objects up to which, and `LONG` bytes up to which, a field is never left out."""

_AS_ONE: Final = 8
"""Numbers and words in a row that cost as much to parse, and to write, as one string, array or object."""

_PLACES: Final = frozenset({"messages", "input", "prompt"})
"""The fields of a request in which long texts are left out."""

_WITHIN: Final = frozenset({"content", "image_url", "input_audio", "source", "file", "output"})
"""Keys that may lie between such a field and a text.

Not the arguments of calls, which recovery reads: neither as a text (`arguments`) nor as an object (`input`).
"""

_TEXTS: Final = frozenset({
    *("content", "text", "url", "image_url", "data", "file_data", "output"),
    *("reasoning_content", "thinking", "refusal"),
})
"""Whose texts may be left out: recovery passes these on as they are, or joins them with others."""

_MARK: Final = re.compile(rb'["\[\]{}]')
_ESCAPED: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_KEY_BYTES: Final = 64  # of a key that could be one of ours
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_OPENING: Final = b"{["


@dataclass(frozen=True, slots=True)
class OutlineLimits:
    """The limits of a request.

    Attributes:
        kept: bytes of its outline. values: strings, arrays and objects in it, and what other values count for.
        marks: strings, arrays and objects in all. scalars: other values in all.
        depth: arrays and objects in each other. fields: of the request itself.
        turn: strings, arrays and objects that are read in one go.
    """

    kept: int = 4 << 20
    values: int = 1 << 16
    marks: int = 1 << 20
    scalars: int = 1 << 23
    depth: int = 512
    fields: int = 1024
    turn: int = 1 << 11


class _Level:
    """An array or object that is open.

    key: under which the values in it stand, for an array its own. plain: long texts in it may be left out.
    """

    __slots__ = ("expects_key", "is_object", "key", "plain")

    def __init__(self, *, is_object: bool, key: str, plain: bool) -> None:
        self.is_object = self.expects_key = is_object
        self.key = key
        self.plain = plain

    @property
    def is_list_of_field(self) -> bool:
        """True if it is plain and the value of such a field itself."""
        return not self.is_object and self.key in _PLACES

    def within(self, *, is_object: bool, at_top: bool) -> _Level:
        """Return the level of an array or object that opens in it."""
        within = self.plain and (self.key in _WITHIN or self.is_list_of_field)
        plain = self.key in _PLACES if at_top else within
        return _Level(is_object=is_object, key="" if is_object else self.key, plain=plain)


class Outliner:
    """A reader of a body; `feed` it, then `finish`."""

    def __init__(self, limits: OutlineLimits = OutlineLimits()) -> None:
        self._limits = limits
        self._offset = 0  # of the present piece in the body
        self._levels: list[_Level] = []
        self._closed = False  # the request's own object
        self._in_string = False
        self._escaping = False  # a piece ended in a backslash
        self._string = 0  # where the present string begins
        self._key = b""  # the present string, as far as it can matter
        self._spans: list[tuple[int, int, bool]] = []  # left out; whether as a whole field
        self._left_out = 0
        self._values = self._marks = self._scalars = self._fields = 0
        self._field: int | None = None  # where the value of the present field begins
        self._before = (0, 0, 0)  # spans, bytes left out and values before it
        self._opaque = False  # the present field is left out
        self._below = 0  # arrays and objects that are open in it

    def feed(self, piece: bytes, at: int = 0) -> int:
        """Read on in a piece from `at`, not for long; return where it got to, which is the end or where to go on.

        Raises InvalidRequest, PayloadTooLarge.
        """
        end = len(piece)
        until = self._marks + self._limits.turn
        while at < end and self._marks < until:
            at = self._through_string(piece, at) if self._in_string else self._to_mark(piece, at)
        self._check(self._offset + at)
        if at >= end:
            self._offset += end
        return at

    def finish(self, body: memoryview, marker: str) -> Outline:
        """Return the outline of the whole `body`, which has been fed. Raise InvalidRequest.

        marker: letters and digits that are not in the body.
        """
        if not self._closed:
            raise InvalidRequest("The request body is not valid JSON: it ends too early.")
        parts: list[bytes | memoryview] = []
        at = 0
        for number, (start, stop, whole) in enumerate(self._spans):
            parts += (body[at:start], mark_of(marker, number, whole=whole))
            at = stop
        parts.append(body[at:])
        spans = tuple((start, stop) for start, stop, _ in self._spans)
        return Outline(b"".join(parts), any(whole for *_, whole in self._spans), body, spans, marker)

    # strings

    def _through_string(self, piece: bytes, at: int) -> int:
        """Read on inside of a string, to behind its end or to the end of the piece."""
        begun = at
        if self._escaping:
            self._escaping = False
            at += 1
        quote = piece.find(b'"', at)
        stop = quote if quote >= 0 else len(piece)
        escape = piece.find(b"\\", at, stop)
        if escape >= 0:
            found = _ESCAPED.match(piece, escape)
            assert found is not None  # it matches nothing, too
            stop = found.end()
            self._escaping = stop == len(piece) - 1 and piece[stop] == _BACKSLASH
            stop += self._escaping
        if len(self._key) < _KEY_BYTES:
            self._key += piece[begun : min(stop, begun + _KEY_BYTES)]
        if stop >= len(piece):
            return len(piece)
        self._in_string = False
        self._string_ends(self._offset + stop)
        return stop + 1

    def _string_ends(self, at: int) -> None:
        """Note the end of a string, whose quote is at `at`."""
        if self._opaque:
            if not self._below:
                self._field_ends(at + 1)
            return
        level = self._levels[-1]
        if level.is_object and level.expects_key:
            level.expects_key = False
            level.key = _text_of(self._key)
            if len(self._levels) == 1:
                self._name_ends()
            return
        if self._may_be_left_out(level) and at - self._string >= LONG:
            self._leave(self._string, at, whole=False)
        self._value_ends(at + 1)

    def _may_be_left_out(self, level: _Level) -> bool:
        """Return whether a long text that stands here may be left out."""
        if len(self._levels) == 1:
            return level.key in _PLACES
        return level.plain and (level.key in _TEXTS or level.is_list_of_field)

    # everything else

    def _to_mark(self, piece: bytes, at: int) -> int:
        """Read on to behind the next quote or bracket, or to the end of the piece."""
        found = _MARK.search(piece, at)
        stop = found.start() if found is not None else len(piece)
        if stop > at:
            self._between(piece[at:stop])
        if found is None:
            return stop
        self._marks += 1
        here = self._offset + stop
        mark = piece[stop]
        if mark == _QUOTE:
            self._string_begins(here)
        elif mark in _OPENING:
            self._opens(here, is_object=mark == _OPENING[0])
        else:
            self._closes(here + 1)
        return stop + 1

    def _between(self, text: bytes) -> None:
        """Note what lies between two marks: commas, colons, numbers and words."""
        if not text.strip(b" \t\r\n,:"):
            return
        if not self._levels:
            if text.strip() != BOM_UTF8 or self._closed:
                raise _not_an_object()
            return
        count = text.count(b",") + 1
        self._scalars += count
        if self._opaque:
            return
        self._values += count // _AS_ONE
        if self._levels[-1].is_object:
            self._levels[-1].expects_key = True

    def _string_begins(self, at: int) -> None:
        if not self._levels:
            raise _not_an_object()
        self._in_string = True
        self._string = at + 1
        self._key = b""
        self._value_begins(at)

    def _opens(self, at: int, *, is_object: bool) -> None:
        if not self._levels and (self._closed or not is_object):
            raise _not_an_object()
        self._value_begins(at)
        if self._opaque:
            self._below += 1
        elif self._levels:
            self._levels.append(self._levels[-1].within(is_object=is_object, at_top=len(self._levels) == 1))
        else:
            self._levels.append(_Level(is_object=True, key="", plain=False))
        if len(self._levels) + self._below > self._limits.depth:
            raise InvalidRequest(f"The request body nests arrays and objects more than {self._limits.depth} deep.")

    def _closes(self, at: int) -> None:
        if not self._levels or (self._opaque and not self._below):
            raise InvalidRequest("The request body is not valid JSON: a bracket is closed that was not opened.")
        if self._opaque:
            self._below -= 1
            if not self._below:
                self._field_ends(at)
            return
        self._levels.pop()
        if self._levels:
            self._value_ends(at)
        else:
            self._closed = True

    def _value_begins(self, at: int) -> None:
        """Note the beginning of a string, array, object or key."""
        if self._opaque:
            return
        if len(self._levels) == 1:
            if self._levels[0].expects_key:
                return  # names of fields have a limit of their own
            self._field = at
        self._values += 1

    def _value_ends(self, at: int) -> None:
        level = self._levels[-1]
        level.expects_key = level.is_object
        if len(self._levels) > 1:
            return
        if self._is_too_large(at):
            self._leave_field_out()
            self._field_ends(at)
        self._field = None

    # fields, and which are left out as a whole

    def _name_ends(self) -> None:
        """Note the end of a field's name."""
        self._fields += 1
        if self._fields > self._limits.fields:
            raise PayloadTooLarge(f"The request has more than {self._limits.fields:,} fields; send fewer.")
        self._before = (len(self._spans), self._left_out, self._values)

    def _field_ends(self, at: int) -> None:
        """Note the end of a field that is left out."""
        assert self._field is not None  # it began
        self._leave(self._field, at, whole=True)
        self._field = None
        self._opaque = False
        self._levels[0].expects_key = True

    def _leave(self, start: int, stop: int, *, whole: bool) -> None:
        self._spans.append((start, stop, whole))
        self._left_out += stop - start - MARK_BYTES

    def _check(self, at: int) -> None:
        """Leave the present field out where it makes the outline too large; refuse a body with too many values."""
        limits = self._limits
        if self._marks > limits.marks or self._scalars > limits.scalars:
            raise PayloadTooLarge(
                f"The request body has more than {limits.marks:,} strings, arrays and objects, or more than "
                f"{limits.scalars:,} other values; send less at once."
            )
        if self._opaque:
            return
        if at - self._left_out > 2 * limits.kept and self._field is None:
            raise PayloadTooLarge(
                "The request body has too much white space or too many small values; send less at once."
            )
        if self._is_too_large(self._string if self._will_be_left_out() else at):
            self._leave_field_out()

    def _is_too_large(self, at: int) -> bool:
        """Return whether the outline is too large because of the present field."""
        if self._values <= self._limits.values and at - self._left_out <= self._limits.kept:
            return False
        _, left_out, values = self._before
        own = at - (at if self._field is None else self._field) - (self._left_out - left_out)
        return own > LONG or self._values - values > _FEW

    def _will_be_left_out(self) -> bool:
        """Return whether the present string will be left out when it ends."""
        if not self._in_string:
            return False
        level = self._levels[-1]
        return not (level.is_object and level.expects_key) and self._may_be_left_out(level)

    def _leave_field_out(self) -> None:
        """Leave the present field out, from its value's beginning on."""
        spans, self._left_out, self._values = self._before
        del self._spans[spans:]
        self._opaque = True
        self._below = len(self._levels) - 1
        del self._levels[1:]


def _not_an_object() -> InvalidRequest:
    return InvalidRequest("The request body must be a JSON object in UTF-8.")


def _text_of(key: bytes) -> str:
    """Return a key's text; empty where it is not one that we know."""
    try:
        return str(json.loads(b'"%b"' % key)) if b"\\" in key else key.decode()
    except ValueError:
        return ""
