"""The daemon's own log: structlog to standard error, one line an event, for people or as JSON.

What libraries log (tracebacks of failed requests above all) goes the same way.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable
from typing import Literal, TextIO, cast

import structlog

LogFormat = Literal["text", "json"]

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_SECRET_KEYS = frozenset({"api_key", "authorization", "token", "key"})


class _Mirrored:
    """Standard error, whose lines another place sees too.

    A reader that is gone or a full disk is no reason for whoever logs to fail.
    """

    def __init__(self, mirror: Callable[[bytes], None]) -> None:
        self._mirror = mirror

    def write(self, text: str) -> int:
        """Write; what is written is whole lines, or the end of one."""
        for line in filter(str.strip, _COLOR.sub("", text).splitlines()):
            self._mirror(line.encode("utf-8", "replace"))
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush standard error."""
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def configure(log_format: LogFormat, mirror: Callable[[bytes], None]) -> None:
    """Set structlog and logging up for this process; `mirror` gets every line without colours."""
    stream = cast(TextIO, _Mirrored(mirror))
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
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        stream=stream, level=logging.WARNING, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s", force=True
    )


def redact(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Hide what must not stand in a log."""
    for key in _SECRET_KEYS & event.keys():
        event[key] = "***"
    return event
