"""Read one JSON value from text that is still arriving, and write it down as strict JSON.

Tolerated, because models do it: single quotes and Python's words if the first quote is a single one, trailing commas,
raw control characters and broken escapes in strings, escaped line ends between tokens, missing and doubled brackets. A
quote that is not escaped is never guessed at: two values without a comma between them are no JSON.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.jsontext import MAX_DEPTH, NUMBER, quote
from supervisor.core.toolcalls.literals import unescape
from supervisor.core.toolcalls.source import Source, Wait, need, peek, run_of, skip_space

KEY, COLON, VALUE, NEXT = range(4)
"""The token that may come next in an object or array."""

_WORD: Final = re.compile(r"[A-Za-z0-9_+.\-]*")
_MAX_WORD: Final = 4096
_WORDS: Final = {"true": "true", "True": "true", "false": "false", "False": "false", "null": "null", "None": "null"}
_PLAIN: Final = {
    '"': re.compile(r'[^"\\\x00-\x1f]*'),
    "'": re.compile(r"[^'\\\x00-\x1f]*"),
}
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")
_VALID: Final = frozenset('"\\/bfnrt')
_STRAY: Final = frozenset("ntr")
_CLOSER: Final = {"{": "}", "[": "]"}


class _Frame:
    """An open bracket: `{`, `[`, or `+` for a doubled brace that is not written down."""

    __slots__ = ("comma", "expect", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.expect = VALUE if kind == "[" else KEY
        self.comma = False  # written once another item follows


class JsonScan:
    """A reader of JSON at the source's position. These hold after `value()`:

    Attributes:
        repaired: the text was not strict JSON.
        complete: the value's own closing bracket came.
    """

    def __init__(self, src: Source) -> None:
        self.src = src
        self.repaired = False
        self.complete = True
        self._single: bool | None = None  # whether the first quote was a single one
        self._out: list[str] = []
        self._stack: list[_Frame] = []

    def value(self) -> Wait[str | None]:
        """Return the value that begins here as strict JSON text; None if there is none, or it was cut."""
        self._out, self._stack = [], []
        self.complete = True
        while True:
            yield from self.space()
            char = yield from peek(self.src)
            if not char or (char not in "{}[]:,\"'" and not char.isalnum() and char not in "+-._"):
                return self._completed()
            good = yield from self._token(char)
            if good is None:
                return self._completed()
            if not good:
                return None
            if not self._stack:
                return "".join(self._out)

    def space(self) -> Wait[None]:
        """Go past white space, and past escaped line ends outside strings."""
        while True:
            yield from skip_space(self.src)
            if self.src.ahead(1) != "\\":
                return
            enough = yield from need(self.src, 2)
            if not enough or self.src.ahead(2)[1] not in _STRAY:
                return
            self.src.pos += 2
            self.repaired = True

    def string(self) -> Wait[str | None]:
        """Return the JSON text of the string that begins here; None if it is none or does not end."""
        mark = yield from peek(self.src)
        if not self.may_quote(mark):
            return None
        self.src.pos += 1
        parts = ['"']
        while True:
            part = yield from self.string_part(mark)
            if part is None:
                return None
            if not part:
                return "".join([*parts, '"'])
            parts.append(part)

    def may_quote(self, mark: str) -> bool:
        """Return whether a string may begin with this character.

        Single quotes are allowed if the first quote is single.
        """
        if mark not in {'"', "'"}:
            return False
        if self._single is None:
            self._single = mark == "'"
            self.repaired |= self._single
        return mark == '"' or self._single

    def string_part(self, mark: str) -> Wait[str | None]:
        """Return the next part of a string, as JSON; empty behind its closing quote, None if the text ends."""
        src = self.src
        char = yield from peek(src)
        if not char:
            return None
        found = src.match(_PLAIN[mark])
        if found and found.group():
            src.pos += len(found.group())
            return found.group() if mark == '"' else quote(found.group())[1:-1]
        if char == mark:
            src.pos += 1
            return ""
        if char == "\\":
            return (yield from self._escape())
        src.pos += 1
        self.repaired = True
        return quote(char)[1:-1]

    def _escape(self) -> Wait[str | None]:
        src = self.src
        enough = yield from need(src, 2)
        if not enough:
            return None
        char = src.ahead(2)[1]
        if char == "u":
            enough = yield from need(src, 6)
            if not enough and src.cut:
                return None
            if _HEX.fullmatch(src.ahead(6)[2:]):
                src.pos += 6
                return src.slice(src.pos - 6, src.pos)
        elif char in _VALID:
            src.pos += 2
            return "\\" + char
        self.repaired = True
        return (yield from self._odd_escape(char))

    def _odd_escape(self, char: str) -> Wait[str | None]:
        """Return an escape that JSON does not know: Python's where Python's quotes are used, else a plain backslash."""
        src = self.src
        if self._single and char == "x":
            yield from need(src, 4)
            meant = unescape(src.ahead(4))
            if len(meant) == 1:
                src.pos += 4
                return quote(meant)[1:-1]
        if self._single and char == "'":
            src.pos += 2
            return "'"
        src.pos += 1
        return "\\\\"

    def _token(self, char: str) -> Wait[bool | None]:
        """Read one token. Return False if it is not JSON, None if the value ends before it."""
        if char in "}]":
            return self._close(char)
        if char in "{[":
            self.src.pos += 1
            return self._open(char)
        if char in ":,":
            return self._separator(char)
        text = yield from self._scalar(char)
        return text is not None and self._put(text)

    def _scalar(self, char: str) -> Wait[str | None]:
        if char in "\"'":
            return (yield from self.string())
        word = yield from run_of(self.src, _WORD, _MAX_WORD)
        if self._stack and self._stack[-1].expect == KEY and word.isidentifier():
            self.repaired = True
            return quote(word)
        if word in _WORDS:
            self.repaired |= word not in {"true", "false", "null"}
            return _WORDS[word]
        return word if NUMBER.fullmatch(word) else None

    def _put(self, text: str) -> bool:
        """Write a scalar."""
        if not self._stack:
            self._out.append(text)
            return True
        top = self._stack[-1]
        if top.expect == KEY and text.startswith('"') and top.kind == "{":
            self._comma(top)
            self._out.append(text)
            top.expect = COLON
            return True
        if top.expect != VALUE:
            return False
        self._comma(top)
        self._out.append(text)
        top.expect = NEXT
        return True

    def _comma(self, top: _Frame) -> None:
        if top.comma:
            self._out.append(", ")
            top.comma = False

    def _open(self, char: str) -> bool:
        if len(self._stack) >= MAX_DEPTH:
            return False
        top = self._stack[-1] if self._stack else None
        if top and top.expect == KEY and char == "{" and not top.comma:
            self.repaired = True
            top.kind, top.expect = "+", NEXT  # doubled: the outer of the two is not written, and holds nothing else
            self._out.pop()
        elif top:
            if top.kind == "[" and top.expect == NEXT and char == "{":
                top.comma, self.repaired = True, True  # array items without a comma
            elif top.expect != VALUE:
                return False
            self._comma(top)
            top.expect = NEXT
        self._out.append(char)
        self._stack.append(_Frame(char))
        return True

    def _separator(self, char: str) -> bool | None:
        if not self._stack:
            return None
        self.src.pos += 1
        top = self._stack[-1]
        if char == ":":
            if top.expect != COLON:
                return False
            self._out.append(": ")
            top.expect = VALUE
            return True
        if top.expect != NEXT or top.kind == "+":
            return False
        top.comma, top.expect = True, KEY if top.kind == "{" else VALUE
        return True

    def _close(self, char: str) -> bool | None:
        kinds = [frame.kind for frame in self._stack]
        opening = "{" if char == "}" else "["
        if not self._stack or (opening not in kinds and not (opening == "{" and "+" in kinds)):
            return None
        while not self._fits(char):
            if not self._shut():
                return False
            self.repaired = True
        self.src.pos += 1
        return self._shut()

    def _fits(self, char: str) -> bool:
        kind = self._stack[-1].kind
        return _CLOSER.get(kind, "}") == char

    def _shut(self) -> bool:
        """Close the innermost bracket."""
        top = self._stack[-1]
        if top.expect in {COLON, VALUE} and not (top.kind == "[" and top.expect == VALUE):
            return False
        self.repaired |= top.comma
        self._stack.pop()
        if top.kind != "+":
            self._out.append(_CLOSER[top.kind])
        return True

    def _completed(self) -> str | None:
        """Return the value so far with its brackets closed; None if anything but brackets is missing."""
        if not self._stack or (self.src.cut and self.src.at_end()):
            return None
        while self._stack:
            if not self._shut():
                return None
        self.complete, self.repaired = False, True
        return "".join(self._out)


def read_json(text: str) -> Wait[str | None]:
    """Return the whole of `text` as strict JSON text; None if it is no JSON. The text must be closed."""
    scan = JsonScan(Source(text, closed=True))
    found = yield from scan.value()
    yield from scan.space()
    return found if scan.src.at_end() else None
