"""Values as models write them when they mean JSON or Python. One reader serves both; nothing is ever evaluated."""

from __future__ import annotations

import re
from typing import Final, cast

from supervisor.core.toolcalls.jsontext import MAX_DEPTH, NUMBER, Json, Number

INVALID: Final = cast("Json", object())
"""The mark of a text that is no value."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SPACE_AND_COMMENTS: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = re.compile(r"[+-]?[0-9.][0-9A-Za-z_.]*(?:(?<=[eE])[+-][0-9]+)?")
_OPENING: Final = re.compile(r"([rRuU]?)(\"\"\"|'''|\"|')")
_WORDS: Final[dict[str, Json]] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(\r\n|[\s\S]))")
_SIMPLE: Final = {
    **{"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": "", "\r\n": ""},
    **{"\\": "\\", "'": "'", '"': '"', "/": "/"},
}
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class NotALiteral(Exception):
    """The text is no literal."""


def read_literal(text: str) -> Json:
    """Return the value of the whole text, or INVALID.

    Tuples become lists; trailing commas and line ends in strings pass.
    """
    reader = LiteralReader(text)
    try:
        value = reader.value()
    except NotALiteral:
        return INVALID
    reader.space()
    return value if reader.pos == len(text) else INVALID


def unescape(text: str) -> str:
    """Return the characters that a Python or JSON string stands for.

    An escape that neither knows keeps its backslash.
    """
    if "\\" not in text:
        return text
    found = _ESCAPE.sub(_unescaped, text)
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), found)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code:
        number = int(code, 16)
        return chr(number) if number <= 0x10FFFF else found[0]
    if found[4]:
        return chr(int(found[4], 8))
    return _SIMPLE.get(found[5], found[0])


class LiteralReader:
    """A reader of values from `text` at `pos`. Raises NotALiteral.

    Args:
        comments: they may stand where white space may.
    """

    def __init__(self, text: str, *, comments: bool = False) -> None:
        self.text = text
        self.pos = 0
        self._space = _SPACE_AND_COMMENTS if comments else _SPACE
        self._depth = 0

    def space(self) -> None:
        """Go past white space."""
        found = self._space.match(self.text, self.pos)
        self.pos = found.end() if found else self.pos

    def take(self, text: str) -> bool:
        """Go past white space, then past `text` if it stands here."""
        self.space()
        if not self.text.startswith(text, self.pos):
            return False
        self.pos += len(text)
        return True

    def is_last(self) -> bool:
        """Return whether a comma or the end follows."""
        self.space()
        return self.pos >= len(self.text) or self.text[self.pos] == ","

    def word(self, pattern: re.Pattern[str] = _WORD) -> str:
        """Go past white space, then past what the pattern matches here; return the match, or nothing."""
        self.space()
        found = pattern.match(self.text, self.pos)
        self.pos = found.end() if found else self.pos
        return found.group() if found else ""

    def value(self) -> Json:
        """Return one value."""
        self.space()
        if _OPENING.match(self.text, self.pos):
            return self.string()
        if self.take("{"):
            return self._object()
        if self.take("["):
            return self._items("]")[0]
        if self.take("("):
            items, commas = self._items(")")
            return items if commas or not items else items[0]
        word = self.word()
        if word:
            if word not in _WORDS:
                raise NotALiteral
            return _WORDS[word]
        return self._number()

    def string(self) -> str:
        """Return one string."""
        opening = _OPENING.match(self.text, self.pos)
        if opening is None:
            raise NotALiteral
        quote, start = opening[2], opening.end()
        at = start
        while True:
            at = self.text.find(quote, at)
            if at < 0:
                raise NotALiteral
            if not _is_escaped(self.text, at, start):
                break
            at += 1
        self.pos = at + len(quote)
        raw = self.text[start:at]
        return raw if opening[1] in {"r", "R"} else unescape(raw)

    def _number(self) -> Json:
        written = self.word(_NUMBER)
        plain = written.replace("_", "").removeprefix("+")
        if re.fullmatch(r"-?[0-9]+\.", plain):
            plain += "0"
        if re.fullmatch(r"-?\.[0-9].*", plain):
            plain = plain.replace(".", "0.", 1)
        if not NUMBER.fullmatch(plain):
            raise NotALiteral
        return int(plain) if re.fullmatch(r"-?[0-9]{1,15}", plain) else Number(plain)

    def _object(self) -> dict[str, Json]:
        self._enter()
        found: dict[str, Json] = {}
        while not self.take("}"):
            key = self.value()
            if not isinstance(key, str) or not self.take(":"):
                raise NotALiteral
            found[key] = self.value()
            if not self.take(",") and not self.text.startswith("}", self.pos):
                raise NotALiteral
        self._depth -= 1
        return found

    def _items(self, closer: str) -> tuple[list[Json], int]:
        self._enter()
        found: list[Json] = []
        commas = 0
        while not self.take(closer):
            found.append(self.value())
            if self.take(","):
                commas += 1
            elif not self.text.startswith(closer, self.pos):
                raise NotALiteral
        self._depth -= 1
        return found, commas

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotALiteral


def _is_escaped(text: str, at: int, start: int) -> bool:
    """Return whether an odd number of backslashes stands before `at`."""
    count = at
    while count > start and text[count - 1] == "\\":
        count -= 1
    return (at - count) % 2 == 1
