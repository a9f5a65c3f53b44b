"""The kinds of values that parameters take. A kind says what it is (`text`) and what belongs to it (`admits`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

INT32: Final = (1 << 31) - 1
"""llama-server keeps most whole numbers in 32 bits; one beyond them becomes another number without a word."""

INT64: Final = (1 << 63) - 1

FLOAT32: Final = 3.4028234663852886e38
"""The largest number that llama-server keeps as it is."""


class Kind(Protocol):
    """A kind of value."""

    @property
    def text(self) -> str:
        """The kind in words, to stand behind `must be`."""
        ...

    def admits(self, value: object) -> bool:
        """Return whether a JSON value is one of these."""
        ...


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers from `least` to `most`; with `above`, `least` itself is none of them. whole: a fraction is none."""

    least: float = -FLOAT32
    most: float = FLOAT32
    whole: bool = False
    above: bool = False

    @property
    def text(self) -> str:
        """The kind in words."""
        name = "a whole number" if self.whole else "a number"
        low, high = self.least > -FLOAT32, self.most < (INT32 if self.whole else FLOAT32)
        if low and high:
            return f"{name} from {_shown(self.least)} to {_shown(self.most)}"
        if low:
            return f"{name} above {_shown(self.least)}" if self.above else f"{name} of at least {_shown(self.least)}"
        return f"{name} of at most {_shown(self.most)}" if high else name

    def admits(self, value: object) -> bool:
        """Return whether a value is such a number. True and false are none, 3.0 is whole."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if isinstance(value, float) and (not math.isfinite(value) or (self.whole and not value.is_integer())):
            return False
        return self.least <= value <= self.most and not (self.above and value == self.least)


@dataclass(frozen=True, slots=True)
class Typed:
    """All values of some JSON types. name: with its article."""

    name: str
    types: tuple[type, ...]

    @property
    def text(self) -> str:
        """The kind in words."""
        return self.name

    def admits(self, value: object) -> bool:
        """Return whether a value has one of the types."""
        return isinstance(value, self.types)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Some texts."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The kind in words."""
        return "one of " + ", ".join(f'"{word}"' for word in self.words)

    def admits(self, value: object) -> bool:
        """Return whether a value is one of the texts."""
        return isinstance(value, str) and value in self.words


@dataclass(frozen=True, slots=True)
class ListOf:
    """Lists of one kind of items. name: of the items. least: the fewest."""

    item: Kind
    name: str
    least: int = 0

    @property
    def text(self) -> str:
        """The kind in words."""
        return f"a list of {self.name}" + (f", at least {self.least}" if self.least else "")

    def admits(self, value: object) -> bool:
        """Return whether a value is such a list."""
        if not isinstance(value, list) or len(value) < self.least:
            return False
        item = self.item
        if isinstance(item, Typed):  # many items cost little
            types = item.types
            return all([isinstance(one, types) for one in value])
        return all(map(item.admits, value))


@dataclass(frozen=True, slots=True)
class Either:
    """The values of any of some kinds."""

    kinds: tuple[Kind, ...]

    @property
    def text(self) -> str:
        """The kind in words."""
        return " or ".join(kind.text for kind in self.kinds)

    def admits(self, value: object) -> bool:
        """Return whether a value is of one of the kinds."""
        return any(kind.admits(value) for kind in self.kinds)


FLAG: Final = Typed("true or false", (bool,))
TEXT: Final = Typed("a text", (str,))
OBJECT: Final = Typed("an object", (dict,))
LIST: Final = Typed("a list", (list,))
ANYTHING: Final = Typed("anything", (object,))
TEXTS: Final = ListOf(TEXT, "texts")
SHARE: Final = Number(0, 1)
ANY_NUMBER: Final = Number()


def whole(least: int, most: int = INT32) -> Number:
    """Return the kind of whole numbers from `least` on."""
    return Number(least, most, whole=True)


def _shown(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)
