"""Changes without effect, set apart by hand: what a program does is the same with them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.changes import Change, changes_of

FILE: Final = Path(__file__).with_name("known.toml")


@dataclass(frozen=True)
class Known:
    """One entry of `known.toml`.

    Attributes:
        path: the file.
        text: the line, without the blanks around it.
        old, new: as in `Change`.
        why: the reason why nothing changes.
    """

    path: str
    text: str
    old: str
    new: str
    why: str

    def is_like(self, change: Change) -> bool:
        """Whether this is that change, wherever in the file the line has moved to."""
        return (self.path, self.text, self.old, self.new) == (change.path, change.text, change.old, change.new)


def read_known() -> list[Known]:
    """All entries."""
    return [Known(**entry) for entry in tomllib.loads(FILE.read_text("utf-8")).get("change", [])]


def stale(root: Path, known: Iterable[Known]) -> list[Known]:
    """Entries of changes that can no longer be made."""
    found = []
    for entry in known:
        path = root / entry.path
        changes = changes_of(entry.path, path.read_text("utf-8")) if path.is_file() else []
        if not any(entry.is_like(change) for change in changes):
            found.append(entry)
    return found
