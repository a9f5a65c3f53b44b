"""Cut what a model writes: at stop strings, and between thoughts and answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Piece(NamedTuple):
    """Some of the text; thought: it is no part of the answer."""

    text: str
    thought: bool = False


class StopCut:
    """The text up to the first stop string. What may be the beginning of one is held back.

    Attributes:
        word: the one that was found.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.word = ""

    def feed(self, text: str) -> str:
        """Return what can be shown."""
        text = self._held + text
        found = min(((at, stop) for stop in self._stops if (at := text.find(stop)) >= 0), default=None)
        if found is not None:
            self._held, self.word = "", found[1]
            return text[: found[0]]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held


class Thoughts:
    """The text, divided at the marks of thoughts, which are left out.

    marks: that begin and end a thought; empty: there are none. within: the prompt ends within one.
    """

    def __init__(self, marks: tuple[str, str] | None, *, within: bool = False) -> None:
        self._marks = marks
        self._within = within
        self._held = ""
        self._fresh = True  # blank lines beside a mark belong to it
        self._blank = ""  # those that may yet be beside one

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that are certain."""
        if self._marks is None:
            return [Piece(text)] if text else []
        text = self._held + text
        self._held = ""
        found: list[Piece] = []
        while text:
            mark = self._marks[1 if self._within else 0]
            at = text.find(mark)
            if at < 0:
                keep = _overlap(text, mark)
                self._held = text[len(text) - keep :]
                self._say(found, text[: len(text) - keep])
                break
            self._say(found, text[:at])
            text = text[at + len(mark) :]
            self._within, self._fresh, self._blank = not self._within, True, ""
        return found

    def end(self) -> list[Piece]:
        """Return what was held back."""
        found: list[Piece] = []
        self._say(found, self._held)
        self._held = ""
        return found

    def _say(self, found: list[Piece], text: str) -> None:
        text = self._blank + text
        if self._fresh:
            text = text.lstrip("\n")
        said = text.rstrip("\n") if self._within else text
        self._blank = text[len(said) :]
        if said:
            self._fresh = False
            found.append(Piece(said, self._within))


def _overlap(text: str, mark: str) -> int:
    """Return the length of the longest end of the text that is a beginning of the mark, and not all of it."""
    most = min(len(text), len(mark) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(mark[:size])), 0)
