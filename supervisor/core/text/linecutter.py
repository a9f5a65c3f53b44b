"""Cut the output of a program into lines. Of a flood, give the beginning and the end, and say how much was left out.

Each line costs time that everybody else waits, and what an engine writes may be what a client sent: a grammar that
cannot be read is printed whole. So there are so many lines at once, then so many a second.
"""

from __future__ import annotations

from collections.abc import Callable

LONGEST_LINE = 1 << 18
"""A longer line is delivered in pieces: memory stays bounded, and so does the time that one takes."""

_BURST = 20_000.0  # lines at once: more than any engine tells of itself when it starts
_PER_SECOND = 2_000.0
_BYTES = 256  # so many cost as much as a line
_TAIL = 2048  # bytes of what is left out that are kept: they may be a program's last words


class LineCutter:
    """A cutter of lines that end with `\\n` or `\\r\\n`; the last one needs no end.

    Args:
        deliver: gets one line at a time, without its end.
    """

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver
        self._rest: list[bytes] = []
        self._held = 0
        self._left = _BURST
        self._at = 0.0
        self._tail = b""
        self._left_out = 0
        self._torn = False

    def feed(self, data: bytes, now: float) -> None:
        """Take what was read at `now` (seconds, forward only)."""
        cost = data.count(b"\n") + self._tail.count(b"\n") + len(data) // _BYTES
        self._left = min(_BURST, self._left + max(0.0, now - self._at) * _PER_SECOND)
        self._at = now
        if self._left < cost:
            self._leave_out(data)
            return
        self._left -= cost
        if self._torn:
            _, end, data = data.partition(b"\n")
            self._torn = not end
        self._go_on()
        self._cut(data)

    @property
    def rest(self) -> bytes:
        """Bytes of a line that has not ended; nothing where lines were left out just now."""
        return b"".join(self._rest)

    def end(self) -> None:
        """Deliver the rest, since nothing more comes."""
        self._go_on()
        if self._rest:
            self._flush(b"")

    def _leave_out(self, data: bytes) -> None:
        """Keep the whole lines at the end. Of a line whose beginning is gone, the rest goes too: it is torn."""
        kept = b"".join((*self._rest, self._tail, data))
        beyond = max(0, len(kept) - _TAIL)
        begins_within = bool(beyond) or self._torn
        cut = kept.find(b"\n", beyond) + 1 if begins_within else 0
        torn = begins_within and not cut
        tail = b"" if torn else kept[cut:]
        counted = self._torn and b"\n" in kept  # a torn line counts when it is torn
        self._left_out += kept.count(b"\n") - tail.count(b"\n") - counted + (torn and (counted or not self._torn))
        self._tail, self._torn = tail, torn
        self._rest, self._held = [], 0

    def _go_on(self) -> None:
        """Say how much was left out, and give the end of it."""
        if self._left_out or self._tail:
            tail, number = self._tail, self._left_out
            self._tail, self._left_out = b"", 0
            self._deliver(b"[%d lines left out: they came too fast]" % number)
            self._cut(tail)

    def _cut(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._flush(line)
        if rest:
            self._rest.append(rest)
            self._held += len(rest)
        if self._held >= LONGEST_LINE:
            self._flush(b"")

    def _flush(self, last: bytes) -> None:
        self._rest.append(last)
        line = b"".join(self._rest)
        self._rest, self._held = [], 0
        self._deliver(line.removesuffix(b"\r"))
