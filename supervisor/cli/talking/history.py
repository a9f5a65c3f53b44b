"""The lines that were typed in conversations, kept for the next one: one a line, the newest last, in a private file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from supervisor.system.atomic import atomic_write
from supervisor.system.owned import own_folder, read_own

MOST_LINES = 1000
LONGEST = 10_000
"""Characters of a message that is kept; longer ones were pasted, and are left out."""

_MOST_BYTES = 4 * MOST_LINES * LONGEST
_WRITTEN = {"\\": "\\\\", "\n": "\\n"}
_READ = {written: meant for meant, written in _WRITTEN.items()}


def read_history(file: Path) -> list[str]:
    """Return what was typed, the oldest first; nothing where the file cannot be read."""
    try:
        lines = read_own(file, _MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [re.sub(r"\\[\\n]", lambda found: _READ[found[0]], line) for line in lines[-MOST_LINES:]]


def write_history(file: Path, typed: Sequence[str]) -> None:
    """Keep the newest of what was typed. A file that cannot be written costs the memory, not the conversation."""
    kept = [text for text in typed if len(text) <= LONGEST][-MOST_LINES:]
    lines = [re.sub(r"[\\\n]", lambda found: _WRITTEN[found[0]], text) for text in kept]
    with contextlib.suppress(OSError):
        own_folder(file.parent)
        atomic_write(file, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
