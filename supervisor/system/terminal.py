"""The guard of the terminal: every text, wherever it came from, loses what the terminal would obey.

Standard output and error are wrapped once, at the start, so that no line of any verb can forget it: names in a GGUF,
messages of a hub, lines of an engine, answers of models, file names. Three sequences pass, which only make text bold,
dim or ordinary again. What moves the cursor or clears lines is written to `obeyed`, never with foreign text in it that
was not made plain.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Any, TextIO

from supervisor.core.text.plaintext import plain

DIM, BOLD, OFF = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_OURS = re.compile("({})".format("|".join(map(re.escape, (DIM, BOLD, OFF)))))


class Shown:
    """A text stream to a terminal that shows what is written and obeys none of it."""

    def __init__(self, stream: TextIO) -> None:
        self.obeyed = stream

    def write(self, text: str) -> int:
        """Write, like any text stream."""
        parts = _OURS.split(text)  # every second one is a sequence of ours
        self.obeyed.write("".join(part if number % 2 else plain(part) for number, part in enumerate(parts)))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write all of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.obeyed, name)


def guard_streams() -> None:
    """Have this process's standard output and error show foreign text, and write what their encoding lacks as escapes.

    What goes to a file or a pipe stays as it is: a program reads it. A stream that was closed leads nowhere.
    """
    _open_closed()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, Shown):
            continue
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")
        if stream.isatty():
            setattr(sys, name, Shown(stream))


def _open_closed() -> None:
    """Have the three standard descriptors open, so that no file or socket of ours becomes one of them."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def obeyed(stream: TextIO) -> TextIO:
    """Return the stream behind `stream`, for what moves the cursor.

    Whoever writes to it makes foreign text plain first.
    """
    return stream.obeyed if isinstance(stream, Shown) else stream
