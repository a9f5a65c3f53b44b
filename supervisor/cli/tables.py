"""Tables as lines of text, for a width.

Where a table is too wide, its widest columns are broken between words. Where even that does not do, each row becomes a
block, a line for each cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from supervisor.cli.prose import cells
from supervisor.core.text.plaintext import plain

_GAP = "  "
_LEAST = 20  # columns for a value in a block, however narrow the terminal says it is


@dataclass(frozen=True)
class Line:
    """One line of a table; `is_head`: it names what stands below or behind it."""

    text: str
    is_head: bool = False


def laid_out(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[Line]:
    """Return a table as lines of at most `width` columns, but for words that are longer; None: as wide as it is."""
    if width is None:
        return _aligned(headers, rows, [max(map(columns_of, column)) for column in zip(headers, *rows, strict=True)])
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = _fitting(headers, shown, width)
    if widths is None:
        return list(_blocks(headers, shown, width))
    broken = [line for row in shown for line in _broken(row, widths)]
    return _aligned(headers, broken, widths)


def wrapped(text: str, width: int) -> list[str]:
    """Break text between words into lines of `width` columns; a word that is longer has a line of its own."""
    found: list[str] = []
    for line in text.split("\n"):
        found.append("")
        for word in line.split(" "):
            longer = f"{found[-1]} {word}" if found[-1] else word
            if found[-1] and columns_of(longer) > width:
                found.append(word)
            else:
                found[-1] = longer
    return found


def columns_of(text: str) -> int:
    """Return the columns that a line takes on a terminal."""
    return sum(map(cells, text))


def _aligned(headers: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[Line]:
    lines = (
        _GAP.join(cell + " " * (width - columns_of(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headers, *rows)
    )
    return [Line(text, number == 0) for number, text in enumerate(lines)]


def _fitting(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the width of each column: as wide as it is where all fit, else the widest are narrower, by words."""
    columns = list(zip(headers, *rows, strict=True))
    widths = [max(columns_of(line) for cell in column for line in cell.split("\n")) for column in columns]
    least = [max(columns_of(word) for cell in column for word in cell.split()) if any(map(str.strip, column)) else 0
             for column in columns]  # fmt: skip
    room = width - len(_GAP) * (len(headers) - 1)
    while sum(widths) > room:
        wide = [place for place, one in enumerate(widths) if one > least[place]]
        if not wide:
            return None
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _broken(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    parts = (wrapped(cell, width) for cell, width in zip(row, widths, strict=True))
    yield from zip_longest(*parts, fillvalue="")


def _blocks(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Line]:
    """Yield each row as a block: its first cell, then a line for each other that says something."""
    named = max(map(columns_of, headers))
    room = max(width - named - 2 * len(_GAP), _LEAST)
    for first, *others in rows:
        yield Line(first, is_head=True)
        for name, cell in zip(headers[1:], others, strict=True):
            for number, line in enumerate(wrapped(cell, room) if cell else ()):
                yield Line(f"{_GAP}{name if number == 0 else '':<{named}}{_GAP}{line}")
