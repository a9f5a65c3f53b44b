"""The locks between processes that install engines; the system lets go of one when its holder dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from supervisor.errors import BuildLocked
from supervisor.llamacpp.progress import Progress, Report
from supervisor.system.owned import shared_folder

_POLL_SECONDS = 0.2
_SPIN_SECONDS = 0.002


@contextlib.asynccontextmanager
async def engine_lock(path: Path, *, wait: bool, report: Report, poll: float = _POLL_SECONDS) -> AsyncIterator[None]:
    """Hold the lock under which engines are built and installed; it is tried for every `poll` seconds, and told once.

    Raises BuildLocked, naming the holder, where another process has it and `wait` is false.
    """
    lock = _lock(path)
    told = False
    while not _try_acquire(lock):
        who = f"process {_holder(path) or 'unknown'}"
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
    with _lock(path).acquire(poll_interval=_SPIN_SECONDS):
        yield


def _lock(path: Path) -> FileLock:
    shared_folder(path.parent)
    return FileLock(path, mode=0o600, fallback_to_soft=False)


def _try_acquire(lock: FileLock) -> bool:
    """Take the lock if it is free, and leave our pid in its file, for people."""
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    Path(lock.lock_file).write_text(f"{os.getpid()}\n", encoding="ascii")
    return True


def _holder(path: Path) -> int | None:
    """Return the pid that the holder left, None if there is none to read."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
