"""The names of workers."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def is_name(text: str) -> bool:
    """Return whether a worker can have this name."""
    return _NAME.fullmatch(text) is not None


def name_like(host: str) -> str:
    """Return the name for a host of that name: what cannot be in one becomes `-`."""
    return _STRANGE.sub("-", host).strip("-._")[:64] or "worker"
