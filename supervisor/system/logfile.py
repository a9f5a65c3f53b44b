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


@dataclass(frozen=True)
class LogFile:
    """The daemon's log on disk, if its standard error is one. `path`: where it would be."""

    path: Path

    def make_room(self, size: int, max_bytes: int, files: int) -> None:
        """Begin a new file where this one would get more than `max_bytes` with `size` more. Never raises.

        files: how many stay at most, the newest included.
        """
        with contextlib.suppress(OSError):
            found = os.fstat(2)
            if found.st_size and found.st_size + size > max_bytes and self._is_ours(found):
                self._rotate(files)

    def _is_ours(self, found: os.stat_result) -> bool:
        ours = os.stat(self.path)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def _rotate(self, files: int) -> None:
        streams = [number for number in _STREAMS if self._is_ours(os.fstat(number))]
        for number in range(files - 1, 0, -1):
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
