"""Server-sent events: bytes to events and back (WHATWG HTML, "Server-sent events").

Line ends are LF, CRLF or CR. A byte order mark at the start is dropped, comments are skipped, an event without
a data line is not dispatched, `id` stays in force until the next one. Lines are cut as bytes and decoded whole,
so a chunk may end anywhere, inside a UTF-8 sequence too. Every byte is looked at a fixed number of times.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.errors import EngineStreamInvalid

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes one event may have; far above what an engine sends, far below what hurts."""

DONE = "[DONE]"
"""The data of the event that ends a stream of the OpenAI API."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """A server-sent event.

    Attributes:
        data: the data lines, joined with LF.
        event: its type; empty means the default, `message`.
        id: the last event id in force.
        retry: reconnection time in milliseconds, where this event's block sets one.

    `event` and `id` hold no line break.
    """

    data: str
    event: str = ""
    id: str = ""
    retry: int | None = None


class SseDecoder:
    """A decoder that turns a stream of bytes, cut anywhere, into events.

    Args:
        max_event_bytes: an event longer than this raises `EngineStreamInvalid`.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._line: list[bytes] = []  # pieces of the line that is not complete yet
        self._size = 0  # bytes since the last blank line
        self._swallow_lf = False  # the last chunk ended in CR: a LF that follows belongs to it
        self._at_start = True
        self._data: list[str] = []
        self._event = ""
        self._id = ""
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes, in order."""
        if self._swallow_lf and chunk:
            self._swallow_lf = False
            chunk = chunk.removeprefix(b"\n")
        events: list[SseEvent] = []
        for piece in chunk.splitlines(keepends=True):
            self._grow(len(piece))
            if not piece.endswith((b"\n", b"\r")):
                self._line.append(piece)
                continue
            event = self._end_line(piece.rstrip(b"\r\n"))
            if event is not None:
                events.append(event)
        if chunk.endswith(b"\r"):
            self._swallow_lf = True
        return events

    def finish(self) -> bool:
        """Return whether the stream ended between two events; an unfinished one is dropped, as the standard says."""
        return not (self._line or self._data)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise EngineStreamInvalid(f"An event of the engine's stream is longer than {self._limit} bytes.")

    def _end_line(self, tail: bytes) -> SseEvent | None:
        line = tail
        if self._line:
            line = b"".join([*self._line, tail])
            self._line.clear()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        self._set_field(name, value.removeprefix(" "))
        return None

    def _set_field(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry = int(value[:9])

    def _dispatch(self) -> SseEvent | None:
        event = SseEvent("\n".join(self._data), self._event, self._id, self._retry) if self._data else None
        self._data.clear()
        self._event = ""
        self._retry = None
        self._size = 0
        return event


def encode(event: SseEvent) -> bytes:
    """Return the bytes of one event, line ends LF; CR and CRLF in the data become LF, half a surrogate pair `?`."""
    lines = [f"{name}: {value}" for name, value in (("event", event.event), ("id", event.id)) if value]
    if event.retry is not None:
        lines.append(f"retry: {event.retry}")
    data = event.data.replace("\r\n", "\n").replace("\r", "\n")
    lines.extend(f"data: {line}" for line in data.split("\n"))
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")
