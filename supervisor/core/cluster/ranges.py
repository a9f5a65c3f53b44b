"""Ranges of a content that nodes ask each other for: one of bytes at a time, as HTTP has them (RFC 9110, 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_ASKED: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)
_TOLD: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", re.ASCII)


class NotSatisfiable(ValueError):
    """A range begins behind the end of the content."""


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes `first` to `last` of a content that has `size` of them; both are within."""

    first: int
    last: int
    size: int

    @property
    def length(self) -> int:
        """Number of its bytes."""
        return self.last - self.first + 1

    def asked(self) -> str:
        """Return it as a request asks for it."""
        return f"bytes={self.first}-{self.last}"

    def told(self) -> str:
        """Return it as an answer tells it."""
        return f"bytes {self.first}-{self.last}/{self.size}"


def range_asked(header: str | None, size: int) -> Range | None:
    """Return the range that a request wants of a content of `size` bytes; None: all of it.

    What is no range, of another unit, or several of them counts for nothing, as the standard has it. Raises
    NotSatisfiable.
    """
    found = None if header is None else _ASKED.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]):
        return None
    first, last = found[1], found[2]
    if not first:  # the last so many bytes
        begin, end = max(0, size - int(last)), size - 1
    else:
        begin, end = int(first), min(int(last), size - 1) if last else size - 1
        if last and int(last) < begin:
            return None
    if begin >= size:
        raise NotSatisfiable(f"the content has {size} bytes")
    return Range(begin, end, size)


def range_told(header: str) -> Range | None:
    """Return the range that an answer says it is; None where it says none that makes sense."""
    found = _TOLD.fullmatch(header.strip())
    if found is None:
        return None
    first, last, size = (int(one) for one in found.groups())
    return Range(first, last, size) if first <= last < size else None
