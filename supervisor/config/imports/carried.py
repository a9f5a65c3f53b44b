"""Collect what an import has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast


@dataclass
class Carried:
    """The result of an import. `data`: as our file holds it.

    `notes`: what has no counterpart or needs a look, a sentence each.
    """

    data: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def section(self, *names: str) -> dict[str, object]:
        """Return the mapping there, made on first use."""
        found = self.data
        for name in names:
            found = cast("dict[str, object]", found.setdefault(name, {}))
        return found

    @property
    def models(self) -> dict[str, dict[str, object]]:
        """Models that were carried over, by name."""
        return cast("dict[str, dict[str, object]]", self.data.get("models", {}))

    def note(self, where: str, text: str) -> None:
        """Note what could not be carried over."""
        self.notes.append(f"{where}: {text}" if where else text)
