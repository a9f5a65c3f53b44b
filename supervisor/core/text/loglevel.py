"""The levels and the forms of the daemon's log."""

from __future__ import annotations

from typing import Final, Literal, get_args

LogLevel = Literal["debug", "info", "warning", "error"]
LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""From the one that tells all to the one that tells the least."""

LogFormat = Literal["text", "json"]
FORMATS: Final[tuple[LogFormat, ...]] = get_args(LogFormat)
"""For people, or one JSON object a line."""
