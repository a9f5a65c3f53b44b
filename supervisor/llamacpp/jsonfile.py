"""Small JSON files that are either the old one or the new one, never half of either."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from supervisor.system.atomic import atomic_write


def read_object(path: Path) -> dict[str, object]:
    """Read the object in `path`; empty where the file is missing, unreadable or holds something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_object(path: Path, value: Mapping[str, object]) -> None:
    """Replace `path` in one step, making its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(value, indent=1, sort_keys=True).encode())


def text(value: object) -> str | None:
    """Return `value` if it is a string."""
    return value if isinstance(value, str) else None


def number(value: object) -> int | None:
    """Return `value` if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
