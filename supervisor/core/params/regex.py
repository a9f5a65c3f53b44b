"""Turn a regular expression into a GBNF grammar, by which llama-server then generates nothing but what it matches.

The answer as a whole has to match, as with vLLM. Taken is what is regular, in Python's notation: characters and their
escapes, `.`, classes, groups, `|`, and `* + ? {m} {m,} {m,n}`, lazy ones too, which match the same texts. `^` and `$`
may stand at the ends. Look-around, back references, word boundaries, flags and possessive repetition are refused.

llama-server writes a bounded repetition out, element by element, so the size of the grammar is counted as it will be,
and bounded. It cannot read the unbounded repetition of what may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NoReturn

MOST_CHARACTERS: Final = 1000
"""Of a pattern."""

MOST_ELEMENTS: Final = 1000
"""Of the grammar, with every repetition written out."""

MOST_OPTIONAL: Final = 100
"""Of its parts that may be left out, likewise: an engine that follows n of them takes steps by the cube of n."""

_MOST_DEPTH: Final = 32
_REPEATS: Final = re.compile(r"\*|\+|\?|\{(\d*+)(,?)(\d*+)\}")
_RUN: Final = re.compile(r"[^\\.\[\](){}*+?^$|]+(?![*+?{])")  # characters of which none is repeated
_GROUP: Final = re.compile(r"\((?:\?(?::|P?<[A-Za-z_]\w*>))?(?!\?)")
_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0", "a": "\a"}
_CLASSES: Final = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\r\x0B\x0C"}
_BEGINS: Final = ("^", r"\A")
_ENDS: Final = ("$", r"\Z", r"\z")


class NotRegular(ValueError):
    """The pattern cannot be a grammar; the text says why."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern as GBNF.

    Attributes:
        text: of the grammar; of characters, these.
        size: its elements, written out.
        nullable: it matches the empty text, too.
        optional: its parts that may be left out, written out.
        character: it is one, or several of which none is repeated.
    """

    text: str
    size: int = 1
    nullable: bool = False
    character: bool = False
    optional: int = 0

    @property
    def written(self) -> str:
        """The part as it stands in a grammar."""
        return _quoted(self.text) if self.character else self.text


def grammar_of(pattern: str) -> str:
    """Return the grammar of all texts that a pattern matches as a whole. Raise NotRegular."""
    if len(pattern) > MOST_CHARACTERS:
        raise NotRegular(f"it is longer than {MOST_CHARACTERS} characters")
    reader = _Reader(pattern)
    whole = reader.alternatives(0)
    if not reader.is_over:
        raise NotRegular(f"it has an unbalanced ) at {reader.at}")
    return f"root ::= {whole.written}\n"


def choice_of(texts: Iterable[str]) -> str:
    """Return the grammar of some texts. Raise NotRegular for one that is no proper Unicode."""
    return f"root ::= {' | '.join(map(_quoted, texts))}\n"


class _Reader:
    """A reader of one pattern. at: where it has got to."""

    def __init__(self, pattern: str) -> None:
        self.at = 0
        self._pattern = pattern

    @property
    def is_over(self) -> bool:
        """True at the end."""
        return self.at >= len(self._pattern)

    def alternatives(self, depth: int) -> _Part:
        """Read what stands between the brackets of a group, or the whole."""
        if depth > _MOST_DEPTH:
            raise NotRegular(f"it has more than {_MOST_DEPTH} groups inside each other")
        ways = [self._sequence(depth)]
        while self._takes("|"):
            ways.append(self._sequence(depth))
        if len(ways) == 1:
            return ways[0]
        text = " | ".join(way.written for way in ways)
        optional = sum(way.optional for way in ways)
        size, nullable = sum(way.size for way in ways), any(way.nullable for way in ways)
        return self._sized(_Part(text, size, nullable, optional=optional))

    def _sequence(self, depth: int) -> _Part:
        if depth == 0:
            self._takes(*_BEGINS)
        parts: list[_Part] = []
        while not self.is_over and self._next not in "|)":
            if depth == 0 and self._ends_here():
                break
            parts.append(self._repeated(self._atom(depth)))
        text = " ".join(_joined(parts)) or '""'
        optional = sum(part.optional for part in parts)
        size, nullable = sum(part.size for part in parts), all(part.nullable for part in parts)
        return self._sized(_Part(text, size, nullable, optional=optional))

    def _ends_here(self) -> bool:
        """Read the sign of the end, if it stands at the end."""
        at = self.at
        if self._takes(*_ENDS) and (self.is_over or self._next == "|"):
            return True
        self.at = at
        return False

    def _atom(self, depth: int) -> _Part:
        run = _RUN.match(self._pattern, self.at)
        if run is not None:
            self.at = run.end()
            return _Part(run[0], len(run[0]), character=True)
        sign = self._next
        if sign == "(":
            return self._group(depth)
        self.at += 1
        if sign == "[":
            return self._class()
        if sign == "\\":
            return self._escape()
        if sign == ".":
            return _Part(r"[^\n]")
        if sign in "*+?":
            self._refuse("has nothing to repeat")
        if sign in "^$":
            self._refuse(f"has {sign} inside")
        return _Part(sign, character=True)

    def _group(self, depth: int) -> _Part:
        opened = _GROUP.match(self._pattern, self.at)
        if opened is None:
            self._refuse("looks around, has flags or a reference")
        self.at = opened.end()
        inner = self.alternatives(depth + 1)
        if not self._takes(")"):
            self._refuse("has a ( that is not closed")
        return _Part(f"({inner.written})", inner.size, inner.nullable, optional=inner.optional)

    def _escape(self) -> _Part:
        """Read what stands behind a backslash."""
        character = self._escaped()
        if character is not None:
            return _Part(character, character=True)
        name = self._pattern[self.at - 1 : self.at]
        negated = "^" if name.isupper() else ""
        return _Part(f"[{negated}{self._named(name)}]")

    def _escaped(self) -> str | None:
        """Read the character that an escape stands for; None where it is the name of a class, which is read, too."""
        sign = self._next
        code = _HEX.match(self._pattern, self.at)
        if code is not None:
            self.at = code.end()
            number = int(code[code.lastindex or 0], 16)
            return chr(number) if number < 0x110000 else self._refuse("has an escape of no character")
        self.at += 1
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign and not sign.isalnum():
            return sign
        return None

    def _named(self, name: str) -> str:
        found = _CLASSES.get(name.lower())
        return found if found is not None else self._refuse(f"has \\{name}")

    def _class(self) -> _Part:
        """Read a class, behind its bracket."""
        text = "^" if self._takes("^") else ""
        first = True
        while first or not self._takes("]"):
            text += self._member(first=first)
            first = False
        return _Part(f"[{text}]")

    def _member(self, *, first: bool) -> str:
        """Read a character, a range or the name of a class."""
        low = self._character(first=first)
        if low is None:
            name = self._pattern[self.at - 1 : self.at]
            return self._refuse(f"has \\{name} in a class") if name.isupper() else self._named(name)
        if self._next != "-" or self._pattern[self.at + 1 : self.at + 2] in {"]", ""}:
            return _in_class(low)
        self.at += 1
        high = self._character(first=False)
        if high is None or high < low:
            self._refuse("has a range that ends before it begins")
        return f"{_in_class(low)}-{_in_class(high)}"

    def _character(self, *, first: bool) -> str | None:
        sign = self._next
        if not sign or (sign == "]" and not first):
            self._refuse("has a [ that is not closed, or a range without an end")
        self.at += 1
        if sign != "\\":
            return sign
        if self._takes("b"):
            return "\b"
        return self._escaped()

    def _repeated(self, part: _Part) -> _Part:
        """Read how often a part comes, and return it with that."""
        found = _REPEATS.match(self._pattern, self.at)
        if found is None or found[0] in {"{}", "{,}"}:
            return part
        self.at = found.end()
        if self._takes("+"):
            self._refuse("has a possessive repetition")
        self._takes("?")
        if _REPEATS.match(self._pattern, self.at):
            self._refuse("has two repetitions in a row")
        least, most = _counts(found)
        if most is not None and most < least:
            self._refuse("has a repetition whose end is before its beginning")
        if most is None and part.nullable:
            self._refuse("repeats without end what may be empty")
        times = max(least + (most is None), most or 0, 1)
        optional = max(part.optional, part.nullable) * times + (least == 0)
        nullable = part.nullable or least == 0
        return self._sized(_Part(_times(part.written, least, most), part.size * times, nullable, optional=optional))

    def _sized(self, part: _Part) -> _Part:
        if part.size > MOST_ELEMENTS:
            raise NotRegular(f"its repetitions make more than {MOST_ELEMENTS} elements when they are written out")
        if part.optional > MOST_OPTIONAL:
            raise NotRegular(f"more than {MOST_OPTIONAL} of its parts may be left out when repetitions are written out")
        return part

    @property
    def _next(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _takes(self, *signs: str) -> bool:
        """Read one of the signs, if it is next."""
        for sign in signs:
            if self._pattern.startswith(sign, self.at):
                self.at += len(sign)
                return True
        return False

    def _refuse(self, why: str) -> NoReturn:
        raise NotRegular(f"it {why} (near character {self.at})")


def _counts(found: re.Match[str]) -> tuple[int, int | None]:
    sign, least, comma, most = found[0], *found.groups()
    if sign in "*+?":
        return (1 if sign == "+" else 0), (1 if sign == "?" else None)
    low = _number(least)
    return low, (_number(most) if most else None) if comma else low


def _number(digits: str) -> int:
    """Return a count; one of many digits is as good as too many."""
    return int(digits or 0) if len(digits) < 9 else MOST_ELEMENTS + 1


def _times(text: str, least: int, most: int | None) -> str:
    if most == 0:
        return '""'
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if short is not None:
        return text + short
    return text + (f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}")


def _joined(parts: Iterable[_Part]) -> Iterator[str]:
    """Yield the parts as they are written, characters in a row as one text."""
    for together, run in groupby(parts, lambda part: part.character):
        if together:
            yield _quoted("".join(part.text for part in run))
        else:
            yield from (part.text for part in run)


def _quoted(text: str) -> str:
    return (
        '"'
        + "".join(one if one.isascii() and one.isprintable() and one not in '"\\' else _code(one) for one in text)
        + '"'
    )


def _in_class(character: str) -> str:
    return character if character.isascii() and character.isalnum() else _code(character)


def _code(character: str) -> str:
    number = ord(character)
    if 0xD800 <= number <= 0xDFFF:
        raise NotRegular("it has half a character")
    return f"\\x{number:02X}" if number < 0x80 else f"\\U{number:08X}"
