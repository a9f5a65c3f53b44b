"""Text for people at a terminal: lines that end between words."""

from __future__ import annotations

import contextlib
import os
import textwrap
import unicodedata
from typing import TextIO

_COLUMNS = 80


def is_terminal(stream: TextIO) -> bool:
    """Tell whether `stream` is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns(stream: TextIO) -> int:
    """Return the columns of the terminal behind `stream`: `COLUMNS` where it is set, 80 where they are unknown."""
    with contextlib.suppress(ValueError):
        if (told := int(os.environ.get("COLUMNS", "0"))) > 0:
            return told
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def fitted(text: str, stream: TextIO, indent: str = "  ") -> str:
    """Break the text into lines between words, so that a terminal does not break it inside one.

    Lines that are added begin with `indent`. What goes to no terminal stays as it is.
    """
    if not is_terminal(stream):
        return text
    wrapper = textwrap.TextWrapper(
        columns(stream) - 1,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


class WordWrap:
    """Breaks text between words while it arrives in pieces, each of which is to be shown at once.

    A word that turns out not to fit on its line is taken back and begun anew on the next one. The last column of the
    terminal stays empty: a cursor that stands behind it is moved differently by every terminal.

    Args:
        width: columns of the terminal.
    """

    def __init__(self, width: int) -> None:
        self._room = max(width - 1, 1)
        self._column = 0
        self._word = ""  # what stands on this line of the word that is not over yet

    def add(self, text: str) -> str:
        """Return the next piece with its line breaks and with the escape sequences that take a word back."""
        return "".join(map(self._placed, text))

    def _placed(self, char: str) -> str:
        if char == "\n":
            self._column, self._word = 0, ""
            return char
        if char == "\t":
            char = " "
        wide = cells(char)
        broken = ""
        if self._column + wide > self._room:
            if char == " ":
                self._word = ""
                return ""  # the line ends here
            broken = self._next_line()
        self._column += wide
        self._word = "" if char == " " or wide > 1 else self._word + char
        return broken + char

    def _next_line(self) -> str:
        """Go on below, with the word that is not over if it did not fill this line alone."""
        word, length = self._word, sum(map(cells, self._word))
        if not word or length >= self._column:
            self._column, self._word = 0, ""
            return "\n"
        self._column = length
        return f"\x1b[{length}D\x1b[K\n{word}"


def clipped(text: str, width: int) -> str:
    """Return the beginning of a line that a terminal shows in `width` columns; `…` stands for what is left out."""
    if sum(map(cells, text)) <= width:
        return text
    kept, room = "", width - 1
    for char in text:
        room -= cells(char)
        if room < 0:
            break
        kept += char
    return f"{kept}…" if width > 0 else ""


def cells(char: str) -> int:
    """Return the columns that a character takes."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
