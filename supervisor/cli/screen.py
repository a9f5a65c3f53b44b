"""A screen of its own on a terminal, and the keys that are pressed there."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence

from supervisor.cli.picture import Line
from supervisor.cli.prose import columns
from supervisor.system.terminal import BOLD, DIM, OFF, obeyed

_CHOSEN = "\x1b[7m"
_STYLES: Mapping[str, str] = {"bold": BOLD, "dim": DIM, "chosen": _CHOSEN}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_KEYS: Mapping[bytes, str] = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"k": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"j": "down",
    b"\x04": "q",
    b"\x1b": "n",
}
_KEY = re.compile(rb"\x1b(?:\[[0-9;]*[@-~]|O[A-Z])|.", re.DOTALL)
_LINES = 24
_MOST_TYPED = 64  # bytes that are read at once


class Screen:
    """The terminal while it is ours: lines to draw, keys to read. `woken`: a file that ends the wait for a key."""

    def __init__(self, woken: int) -> None:
        self._woken = woken
        self._typed: list[bytes] = []

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw the lines from the top, and nothing below them. They hold nothing that a terminal obeys."""
        drawn = "\r\n".join(f"{_styled(line)}\x1b[K" for line in lines)
        stream = obeyed(sys.stdout)
        stream.write(f"\x1b[H{drawn}\x1b[J")
        stream.flush()

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        try:
            lines = os.get_terminal_size(sys.stdout.fileno()).lines
        except (OSError, ValueError):
            lines = _LINES
        return columns(sys.stdout) - 1, lines or _LINES

    def key(self, seconds: float) -> str | None:
        """Return the next key by name, a letter by itself; None after so many seconds, or when woken."""
        keys = sys.stdin.fileno()
        ready, _, _ = select.select([keys, self._woken], [], [], 0 if self._typed else seconds)
        if self._woken in ready:
            os.read(self._woken, _MOST_TYPED)
        if keys in ready:
            self._typed += _KEY.findall(os.read(keys, _MOST_TYPED)) or [b"q"]  # nothing: the terminal has gone
        if not self._typed:
            return None
        key = self._typed.pop(0)
        return _KEYS.get(key, key[:1].decode("ascii", "replace"))


@contextlib.contextmanager
def own_screen(woken: int) -> Iterator[Screen]:
    """Take the terminal over; it is as before afterwards, however this ends."""
    keys, stream = sys.stdin.fileno(), obeyed(sys.stdout)
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys)
        stream.write(_ENTER)
        stream.flush()
        yield Screen(woken)
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)
        stream.write(_LEAVE)
        stream.flush()


def _styled(line: Line) -> str:
    style = _STYLES.get(line.style, "") if line.style == "chosen" or not os.environ.get("NO_COLOR") else ""
    return f"{style}{line.text}{OFF}" if style else line.text
