"""The shapes of what a client sent. Whether they are right is for the engine to say; none of them fails here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """A value that should be an object; an empty one where it is none."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """A value that should be an array; an empty one where it is none."""
    return value if isinstance(value, list) else []
