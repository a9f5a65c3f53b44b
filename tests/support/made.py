"""A part of a file that is made from the code: where it stands, and what makes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Made:
    """A part of a file. `place` finds it in the file's text, `make` says what has to stand there."""

    path: Path
    place: re.Pattern[str]
    make: Callable[[], str]

    def shown(self) -> str:
        """The part as the file has it. Raises LookupError where it is not there."""
        found = self.place.search(self.path.read_text(encoding="utf-8"))
        if found is None:
            raise LookupError(f"{self.path} has no place for {self.make}")
        return found[0]

    def is_stale(self) -> bool:
        """Whether the file has something else than what is made."""
        return self.shown() != self.make()

    def write(self) -> None:
        """Put what is made in place of what stands there."""
        text = self.path.read_text(encoding="utf-8")
        self.path.write_text(text.replace(self.shown(), self.make(), 1), encoding="utf-8")
