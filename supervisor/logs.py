"""The daemon's own log: structlog to standard error, one line an event, for people or as JSON."""

from __future__ import annotations

import sys
from typing import Literal

import structlog

LogFormat = Literal["text", "json"]

_SECRET_KEYS = frozenset({"api_key", "authorization", "token", "key"})


def configure(log_format: LogFormat) -> None:
    """Set structlog up for this process."""
    colors = log_format == "text" and sys.stderr.isatty()
    renderer = structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer(colors=colors)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            redact,
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def redact(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Hide what must not stand in a log."""
    for key in _SECRET_KEYS & event.keys():
        event[key] = "***"
    return event
