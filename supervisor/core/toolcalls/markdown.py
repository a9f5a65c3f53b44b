"""Tell whether a place in running text is code, inside an inline span or a fence. It is fed the text as it goes by.

An inline span lasts to the end of its line at most, so that a stray backtick on an earlier line changes nothing.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

_TOKENS: Final = re.compile(r"`+|~+|\n|[^`~\n]+")
_LEAST: Final = 3  # characters of a fence


_Run: TypeAlias = tuple[str, int]
_NOTHING: Final[_Run] = ("", 0)


class Code:
    """The state at the end of the text that was fed.

    Attributes:
        line_start: only blanks since the last line break.
    """

    def __init__(self) -> None:
        self.line_start = True
        self._fence = _NOTHING  # what opened the fence we are in
        self._pending = _NOTHING  # opens or closes a fence if its line ends well
        self._span = 0  # backticks that opened the inline span we are in
        self._run = _NOTHING  # may go on

    def feed(self, text: str) -> None:
        """Go past `text`."""
        for found in _TOKENS.finditer(text):
            token = found.group()
            if token[0] in "`~":
                if self._run[0] != token[0]:
                    self._end_run()
                self._run = (token[0], self._run[1] + len(token))
                continue
            self._end_run()
            if token == "\n":
                self._end_line()
            elif not token.isspace():
                self.line_start = False
                if self._fence[1]:
                    self._pending = _NOTHING  # no closing fence: it has text behind it

    def is_code(self) -> bool:
        """Return whether the text that comes next is code."""
        self._end_run()
        return bool(self._fence[1] or self._span)

    def _end_run(self) -> None:
        (char, count), self._run = self._run, _NOTHING
        if not count:
            return
        if self._fence[1]:
            closes = self.line_start and char == self._fence[0] and count >= self._fence[1]
            self._pending = (char, count) if closes else _NOTHING
        elif self.line_start and count >= _LEAST:
            self._pending = (char, count)
            self._span = count if char == "`" else 0
        elif char == "`":
            if self._pending[0] == "`":
                self._pending = _NOTHING
            self._span = 0 if self._span == count else self._span or count
        self.line_start = False

    def _end_line(self) -> None:
        if self._pending[1]:
            self._fence = _NOTHING if self._fence[1] else self._pending
        self._pending = _NOTHING
        self._span = 0
        self.line_start = True
