"""The levels of the daemon's log."""

from __future__ import annotations

from typing import Final, Literal, get_args

LogLevel = Literal["debug", "info", "warning", "error"]
LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""From the one that tells all to the one that tells the least."""
