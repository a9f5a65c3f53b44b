"""The daemon's own log: structlog to standard error, one line an event, for people or as JSON.

What libraries log (tracebacks of failed requests above all) goes the same way. A line is shown, never obeyed
(`core/text/plaintext`), has a longest length, and one cause writes so many lines and no more (`core/text/flood`). What
models write is logged at level debug alone.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO, cast

import structlog

from supervisor.core.text.flood import Flood
from supervisor.core.text.loglevel import LEVELS, LogFormat, LogLevel
from supervisor.core.text.plaintext import one_line, plain
from supervisor.core.text.secrets import without_credentials
from supervisor.system.logfile import LogFile
from supervisor.system.requestid import current_id
from supervisor.system.terminal import obeyed

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_SAID_TO_CLIENTS = ("python_multipart",)  # what these libraries log, the client hears as an error
_SECRET_KEYS = frozenset({"api_key", "authorization", "token", "key", "secret", "password"})
_LONGEST = 2000  # characters of one value
_LONGEST_TRACEBACK = 20_000
_TRACEBACK = "exception"
_JSON = structlog.processors.JSONRenderer()


@dataclass(frozen=True)
class LogSettings:
    """What is configured. max_bytes: of one file of the log. files: how many stay at most, the newest included."""

    level: LogLevel = "info"
    max_bytes: int = 5 << 20
    files: int = 4
    format: LogFormat = "text"


class LogControl:
    """What of the log may change while the daemon runs: its level, its form and the size of its file.

    Args:
        settings: what is configured now.
        file: where the daemon's standard error may lead.
    """

    def __init__(
        self,
        settings: Callable[[], LogSettings] = LogSettings,
        file: LogFile | None = None,
        flood: Flood | None = None,
    ) -> None:
        self._settings = settings
        self._file = file
        self._flood = flood or Flood()
        self._configured = self._level = settings().level

    @property
    def level(self) -> LogLevel:
        """The level below which events are left out. One that was set by hand stays until another is configured."""
        configured = self._settings().level
        if configured != self._configured:
            self._level = self._configured = configured
        return self._level

    def set_level(self, level: LogLevel) -> None:
        """Leave out what is below this level, until another one is configured."""
        self._configured = self._settings().level
        self._level = level

    def make_room(self, size: int) -> None:
        """Begin a new file of the log where the present one cannot take `size` more bytes. Never raises."""
        if self._file is not None:
            settings = self._settings()
            self._file.make_room(size, settings.max_bytes, settings.files)

    @property
    def format(self) -> LogFormat:
        """The form of its lines that is configured now."""
        return self._settings().format

    def choose(self, _logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Drop what is below the level and what one cause writes too much of, as a processor of structlog."""
        if _rank(method) < LEVELS.index(self.level):
            raise structlog.DropEvent
        dropped = self._flood.passes(event.get("event"), time.monotonic())
        if dropped is None:
            raise structlog.DropEvent
        return {**event, "left_out": dropped} if dropped else event

    def wants(self, record: logging.LogRecord) -> bool:
        """Choose likewise among what libraries log: warnings and worse. A cause is a place in their code."""
        if record.levelno < max(logging.WARNING, getattr(logging, self.level.upper())):
            return False
        dropped = self._flood.passes((record.pathname, record.lineno), time.monotonic())
        if dropped:
            record.msg = f"{record.msg} (left out before: {dropped})"
        return dropped is not None


class _Mirrored:
    """Standard error, whose lines another place sees too.

    A reader that is gone or a full disk is no reason for whoever logs to fail.
    """

    def __init__(self, mirror: Callable[[bytes], None], control: LogControl) -> None:
        self._mirror = mirror
        self._control = control

    def write(self, text: str) -> int:
        """Write; what is written is whole lines, or the end of one."""
        for line in filter(str.strip, _COLOR.sub("", text).splitlines()):
            self._mirror(line.encode("utf-8", "replace"))
        self._control.make_room(len(text))
        with contextlib.suppress(OSError):
            obeyed(sys.stderr).write(text)
        return len(text)

    def flush(self) -> None:
        """Flush standard error."""
        with contextlib.suppress(OSError):
            sys.stderr.flush()


class _LineFormatter(logging.Formatter):
    """A record as text that nothing in it can break out of, or as JSON; `form` says which."""

    def __init__(self, form: Callable[[], LogFormat]) -> None:
        super().__init__("%(asctime)s [%(levelname)s] %(name)s: %(message)s")
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return its line, and the lines of its traceback."""
        return _as_json(self, record) if self._form() == "json" else self._as_text(record)

    def _as_text(self, record: logging.LogRecord) -> str:
        request = current_id()
        said = f"[{request}] {record.getMessage()}" if request else record.getMessage()
        named = logging.makeLogRecord({**vars(record), "msg": said, "args": None})
        return _cut(plain(without_credentials(super().format(named))), _LONGEST_TRACEBACK)


def configure(
    log_format: LogFormat | None, mirror: Callable[[bytes], None], control: LogControl | None = None
) -> LogControl:
    """Set structlog and logging up for this process.

    Args:
        log_format: the form of a line; None: always the one that `control` has.
        mirror: gets every line without colours.
        control: what may change.
    """
    control = control or LogControl()
    stream = cast(TextIO, _Mirrored(mirror, control))
    text = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())

    def form() -> LogFormat:
        return log_format or control.format

    def rendered(logger: object, method: str, event: structlog.typing.EventDict) -> str | bytes:
        return (_JSON if form() == "json" else text)(logger, method, event)

    structlog.configure(
        processors=[
            control.choose,
            of_request,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            redact,
            structlog.processors.format_exc_info,
            bounded,
            rendered,
        ],
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_LineFormatter(form))
    handler.addFilter(control.wants)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in _SAID_TO_CLIENTS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return control


def _as_json(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the line of a library's record with the names that our own events have."""
    trace = {_TRACEBACK: formatter.formatException(record.exc_info)} if record.exc_info else {}
    event = {"event": record.getMessage(), "logger": record.name, "level": record.levelname.lower(), **trace}
    when = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
    shown = bounded(None, "", redact(None, "", of_request(None, "", {**event, "timestamp": when})))
    return str(_JSON(None, "", shown))


def of_request(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Name the request that is being answered, where one is."""
    request = current_id()
    return event if request is None else {**event, "request_id": request}


def redact(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Hide what must not stand in a log: values that are called like a secret, credentials in URLs."""
    for key in _SECRET_KEYS & event.keys():
        event[key] = "***"
    for key, value in event.items():
        if isinstance(value, str) and "@" in value:
            event[key] = without_credentials(value)
    return event


def bounded(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Make every value plain, one line and not too long; a traceback has lines."""
    return {key: _trace(value) if key == _TRACEBACK else _bounded(value) for key, value in event.items()}


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return one_line(_cut(value, _LONGEST))
    if value is None or isinstance(value, bool | int | float):
        return value
    return one_line(_cut(repr(value), _LONGEST)) if not isinstance(value, list | tuple | dict) else _nested(value)


def _nested(value: object) -> object:
    """Keep small lists and objects as they are, for the JSON form."""
    shown = repr(value)
    return value if len(shown) <= _LONGEST and one_line(shown) == shown else one_line(_cut(shown, _LONGEST))


def _trace(value: object) -> object:
    return plain(_cut(str(value), _LONGEST_TRACEBACK))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def _rank(method: str) -> int:
    """Return how serious a log method is; those that are no level (`exception`, `critical`) are errors."""
    return LEVELS.index(method) if method in LEVELS else {"warn": 2}.get(method, len(LEVELS) - 1)
