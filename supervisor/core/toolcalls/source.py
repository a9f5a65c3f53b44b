"""Text that arrives in pieces, read by generators that wait for more.

A reader is a generator: it yields None where it needs text that has not come yet, and other signals on its way; what it
finds out is its return value. A reader never decides by where the text ends unless the source is closed, so how the
text was cut cannot change what is found. Positions are counted from the start of the stream.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CompleteCall:
    """Signal: a call is complete, and the source stands behind it.

    Attributes:
        arguments: text of a JSON object.
        brackets: it ended with a bracket, so stray ones may follow.
    """

    name: str
    arguments: str
    dialect: str
    id: str | None = None
    repaired: bool = False
    brackets: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Signal: a piece of a long call's arguments; the first one begins the call.

    Attributes:
        upto: the position up to which the text is not needed any more.
        last: the call ends with it.
        complete: with `last`: the call was not cut.
    """

    name: str
    text: str
    dialect: str
    upto: int
    id: str | None = None
    last: bool = False
    complete: bool = True
    repaired: bool = False
    brackets: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Signal: a call of a tool that was not offered is being read, so everything up to its end is text."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Signal: the unknown call ends here. What follows may be known again."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Signal: text of the model stands between these positions, inside the markup of a call."""

    start: int
    stop: int


Signal: TypeAlias = CompleteCall | Piece | Unknown | Resume | Aside | None
Wait: TypeAlias = Generator[Signal, None, T]

_BLOCK: Final = 4096
_PATIENCE: Final = 64 * 1024
_PATIENCE_PER_CHARACTER: Final = 4
_SPACE: Final = re.compile(r"[ \t\r\n]*")


class Literals:
    """A set of strings to be recognised at a position."""

    def __init__(self, texts: Iterable[str]) -> None:
        ordered = sorted(sorted(set(texts)), key=len, reverse=True)  # of one length, by letters: always the same
        self.pattern = re.compile("|".join(map(re.escape, ordered)))
        self.prefixes = frozenset(text[:length] for text in ordered for length in range(len(text)))
        self.texts = frozenset(ordered)
        self.longest = len(ordered[0]) if ordered else 0


@lru_cache(maxsize=64)
def literals_of(texts: frozenset[str], *more: str) -> Literals:
    """Return the literals of a set and of a few more texts, made once."""
    return Literals([*texts, *more])


class Source:
    """The text, the reading position, and whether more can come.

    Attributes:
        pos: where reading is.
        end: how much has come.
        closed: nothing more comes.
        cut: closed before the model was done; what is unfinished may not be finished by guessing.
        doubt: where what is being read may have ended already; -1 for nowhere.
        doubted: characters that were read behind such places in vain.
    """

    def __init__(self, text: str = "", *, closed: bool = False) -> None:
        self.pos = 0
        self.end = len(text)
        self.closed = closed
        self.cut = False
        self.doubt = -1
        self.doubted = 0
        self._kept: list[str] = []  # read text before the tail, from `_base` on
        self._base = 0
        self.tail = text
        self.tail_at = 0

    def feed(self, text: str) -> None:
        """Append text.

        Text that has been read is set aside in blocks, so that appending stays cheap as the text grows.
        """
        read = self.pos - self.tail_at
        if read > _BLOCK:
            self._kept.append(self.tail[:read])
            self.tail = self.tail[read:]
            self.tail_at = self.pos
        self.tail += text
        self.end += len(text)

    def forget(self, pos: int) -> None:
        """Let go of the text before `pos`."""
        if pos < self.tail_at:
            return
        self._kept.clear()
        read = pos - self.tail_at
        if read > _BLOCK and read * 2 > len(self.tail):
            self.tail = self.tail[read:]
            self.tail_at = pos
        self._base = self.tail_at

    def seek(self, pos: int) -> None:
        """Go (back) to a position, or to the first one that has not been forgotten."""
        if pos < self.tail_at:
            self.tail = "".join([*self._kept, self.tail])
            self.tail_at = self._base
            self._kept.clear()
        self.pos = max(pos, self.tail_at)

    def slice(self, start: int, stop: int) -> str:
        """Return the text between two positions that have not been forgotten."""
        if start >= self.tail_at:
            return self.tail[start - self.tail_at : stop - self.tail_at]
        return "".join([*self._kept, self.tail])[start - self._base : stop - self._base]

    def ahead(self, count: int) -> str:
        """Return up to `count` characters from the reading position, as far as they have come."""
        at = self.pos - self.tail_at
        return self.tail[at : at + count]

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the pattern's match at the reading position, within the text that has come."""
        return pattern.match(self.tail, self.pos - self.tail_at)

    def find(self, pattern: re.Pattern[str]) -> int:
        """Return the position of the pattern's first match from the reading position on, or -1."""
        found = pattern.search(self.tail, self.pos - self.tail_at)
        return -1 if found is None else self.tail_at + found.start()

    def certain(self) -> int:
        """Return the position up to which reading will not go back."""
        return self.pos if self.doubt < 0 else self.doubt

    def is_patient(self) -> bool:
        """Return whether reading may look behind a doubtful end.

        The cost of doing so in vain stays a small multiple of the text.
        """
        return self.doubted <= _PATIENCE_PER_CHARACTER * self.pos + _PATIENCE

    def at_end(self) -> bool:
        """Return whether the text is closed and all of it read."""
        return self.closed and self.pos >= self.end


def need(src: Source, count: int) -> Wait[bool]:
    """Wait until `count` characters are ahead; return False if there will never be so many."""
    while src.end - src.pos < count and not src.closed:
        yield None
    return src.end - src.pos >= count


def peek(src: Source) -> Wait[str]:
    """Return the next character; empty at the end."""
    while src.pos >= src.end and not src.closed:
        yield None
    return src.ahead(1)


def skip_space(src: Source) -> Wait[None]:
    """Go past blanks, tabs and line ends."""
    while True:
        found = src.match(_SPACE)
        src.pos += len(found.group()) if found else 0
        if src.pos < src.end or src.closed:
            return
        yield None


def one_of(src: Source, literals: Literals) -> Wait[str]:
    """Return the longest of the literals that stands here, or nothing, without moving."""
    while True:
        rest = src.ahead(literals.longest)
        if len(rest) == literals.longest or src.closed or rest not in literals.prefixes:
            found = literals.pattern.match(rest)
            return found.group() if found else ""
        yield None


def take(src: Source, text: str) -> Wait[bool]:
    """Go past `text` if it stands here, and return whether it did."""
    while True:
        rest = src.ahead(len(text))
        if rest == text:
            src.pos += len(text)
            return True
        if src.closed or not text.startswith(rest):
            return False
        yield None


def take_one(src: Source, literals: Literals) -> Wait[str]:
    """Go past one of the literals, and return it, or nothing."""
    found = yield from one_of(src, literals)
    src.pos += len(found)
    return found


def run_of(src: Source, pattern: re.Pattern[str], limit: int) -> Wait[str]:
    """Go past the longest run that the pattern (one class, repeated) matches; at most `limit` + 1 characters of it."""
    start = src.pos
    while True:
        found = src.match(pattern)
        src.pos += len(found.group()) if found else 0
        if src.pos - start > limit or src.pos < src.end or src.closed:
            src.pos = min(src.pos, start + limit + 1)
            return src.slice(start, src.pos)
        yield None


def until(src: Source, stop: re.Pattern[str], limit: int) -> Wait[str | None]:
    """Return the text up to the first character that `stop` (one class) matches.

    None if it does not come within `limit`.
    """
    start = src.pos
    while True:
        found = src.find(stop)
        src.pos = src.end if found < 0 else found
        if src.pos - start > limit:
            return None
        if found >= 0:
            return src.slice(start, found)
        if src.closed:
            return None
        yield None


def finished(reader: Wait[T]) -> T:
    """Return the result of a reader on a closed source; its signals are ignored."""
    while True:
        try:
            next(reader)
        except StopIteration as stop:
            result: T = stop.value
            return result
