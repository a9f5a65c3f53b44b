"""The daemon's own log: structlog to standard error, one line an event, for people or as JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Literal, TextIO, cast

import structlog

LogFormat = Literal["text", "json"]

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_SECRET_KEYS = frozenset({"api_key", "authorization", "token", "key"})


class _Mirrored:
    """Standard error, whose lines another place sees too."""

    def __init__(self, mirror: Callable[[bytes], None]) -> None:
        self._mirror = mirror

    def write(self, text: str) -> int:
        """Write; structlog writes whole lines."""
        if text.strip():
            self._mirror(_COLOR.sub("", text).rstrip("\n").encode())
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush standard error."""
        sys.stderr.flush()


def configure(log_format: LogFormat, mirror: Callable[[bytes], None]) -> None:
    """Set structlog up for this process; `mirror` gets every line without colours."""
    colors = log_format == "text" and sys.stderr.isatty()
    text, machine = structlog.dev.ConsoleRenderer(colors=colors), structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            redact,
            structlog.processors.format_exc_info,
            machine if log_format == "json" else text,
        ],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Mirrored(mirror))),
        cache_logger_on_first_use=True,
    )


def redact(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Hide what must not stand in a log."""
    for key in _SECRET_KEYS & event.keys():
        event[key] = "***"
    return event
