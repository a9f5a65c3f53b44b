"""A lock between processes, held through an open file: the system lets go of it when its holder dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from supervisor.errors import BuildLocked
from supervisor.llamacpp.progress import Progress, Report
from supervisor.system.owned import shared_folder

_POLL_SECONDS = 0.2
_SPIN_SECONDS = 0.002


class FileLock:
    """An exclusive lock on `path`; the holder's pid stands in the file, for people."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; False where another process (or another FileLock) holds it."""
        shared_folder(self._path.parent)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
        except OSError:
            os.close(handle)
            return False
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle
        return True

    def release(self) -> None:
        """Let go; harmless when not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def holder(self) -> int | None:
        """Return the pid that the holder left, None if there is none to read."""
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        os.lseek(handle, 1 << 30, os.SEEK_SET)  # a byte past the text, so that the text stays readable
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.asynccontextmanager
async def engine_lock(path: Path, *, wait: bool, report: Report, poll: float = _POLL_SECONDS) -> AsyncIterator[None]:
    """Hold the lock under which engines are built and installed; it is tried for every `poll` seconds, and told once.

    Raises BuildLocked, naming the holder, where another process has it and `wait` is false.
    """
    lock = FileLock(path)
    told = False
    while not lock.try_acquire():
        who = f"process {lock.holder() or 'unknown'}"
        if not wait:
            raise BuildLocked(f"{who} is installing an engine; wait for it, or run again with --wait")
        if not told:
            report(Progress("wait", None, f"{who} is installing an engine"))
            told = True
        await asyncio.sleep(poll)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def short_lock(path: Path) -> Iterator[None]:
    """Hold a lock that is only ever held for the moment of rewriting a small file."""
    lock = FileLock(path)
    while not lock.try_acquire():
        time.sleep(_SPIN_SECONDS)
    try:
        yield
    finally:
        lock.release()
