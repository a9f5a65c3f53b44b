"""Contents of the hub's cache while they arrive: the lock that the hub's own client takes, and the file that grows."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock


@contextlib.contextmanager
def locked(cache: Path, repo: str, etag: str, seconds: float = -1) -> Iterator[None]:
    """Hold the lock of a content; negative: wait for it. Raises filelock.Timeout."""
    place = cache / ".locks" / folder_in(cache, repo).name / f"{etag}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place, timeout=seconds, mode=0o664):
        yield


def folder_in(cache: Path, repo: str) -> Path:
    """Return the folder in which a cache keeps a repository."""
    return cache / f"models--{repo.replace('/', '--')}"


def no_link(path: str, flags: int) -> int:
    """Open a file, but no link in its place: that is none of ours. For `open`."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def fault_of(place: Path, size: int | None, sha256: str | None) -> str | None:
    """Return what is wrong with a file that should have this size and hash, as half a sentence. Reads all of it."""
    found = place.stat().st_size
    if size is not None and found != size:
        return f"has {found} bytes, not {size}"
    if sha256:
        with place.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != sha256:
            return f"has the sha256 {digest}, not {sha256}"
    return None
