"""The file of a daemon in the background, kept within a size: its standard error leads there, and is led elsewhere.

`load` and its like open the file and start the daemon with it as standard output and error, so that whatever ends a
daemon is in it too. When the file is full it becomes `daemon.log.1`, the older ones move on, and both descriptors are
pointed to a new one.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_STREAMS = (1, 2)


@dataclass
class LogFile:
    """The daemon's log on disk, if its standard error is one.

    path: where it would be. max_bytes: of one file. files: how many there are at most, the newest included.
    """

    path: Path
    max_bytes: int = 5 << 20
    files: int = 4

    def make_room(self, size: int) -> None:
        """Begin a new file where this one cannot take `size` more bytes. Never raises."""
        with contextlib.suppress(OSError):
            found = os.fstat(2)
            if found.st_size and found.st_size + size > self.max_bytes and self._is_ours(found):
                self._rotate()

    def _is_ours(self, found: os.stat_result) -> bool:
        ours = os.stat(self.path)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def _rotate(self) -> None:
        streams = [number for number in _STREAMS if self._is_ours(os.fstat(number))]
        for number in range(self.files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        fresh = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for number in streams:
                os.dup2(fresh, number)
        finally:
            os.close(fresh)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path
