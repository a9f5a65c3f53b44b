"""Read the shapes of what a client sent. Whether they are right is for the engine to say; no function here fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """Return a value that should be an object; an empty one where it is none."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """Return a value that should be an array; an empty one where it is none."""
    return value if isinstance(value, list) else []
