"""Outcomes that are kept in a file, so that one that changes is seen: of inputs too many to be judged one by one.

A file has a digest by name: `{"D1": "5f3a…"}`. Where an outcome changes on purpose, the file is written anew with the
command that the failure names, and the change is part of the commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_DIGITS = 16


def digest_of(outcome: Any) -> str:
    """The digest of anything that JSON can hold."""
    text = json.dumps(outcome, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def write(path: Path, outcomes: Mapping[str, Any]) -> None:
    """Write the file anew."""
    lines = [f"{json.dumps(name)}: {json.dumps(digest_of(found))}" for name, found in sorted(outcomes.items())]
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def changed(path: Path, outcomes: Mapping[str, Any]) -> list[str]:
    """The names whose outcome is not the one that was kept, and those that are only here or only there."""
    kept: dict[str, str] = json.loads(path.read_text("utf-8"))
    found = {name: digest_of(outcome) for name, outcome in outcomes.items()}
    return sorted(name for name in kept.keys() | found.keys() if kept.get(name) != found.get(name))


class Dice:
    """Numbers that are the same for the same words on every machine, with every Python."""

    def __init__(self, *words: object) -> None:
        self._words = words
        self._thrown = 0

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""
        self._thrown += 1
        data = repr((*self._words, self._thrown)).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") % max(1, end)

    def one_of(self, choices: Iterable[Any]) -> Any:
        """One of them."""
        there = list(choices)
        return there[self.below(len(there))]
