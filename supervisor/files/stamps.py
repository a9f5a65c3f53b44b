"""Tell files from each other, and a file from what it was before, without reading them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from supervisor.core.launch.keeping import FileStamp


def stamps(paths: Iterable[str | os.PathLike[str]]) -> tuple[FileStamp, ...]:
    """Return a stamp of each file, wherever links to it lead. One that is not there is of no size and no time."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str | os.PathLike[str]) -> FileStamp:
    whole = os.path.realpath(path)
    try:
        found = os.stat(whole)
    except OSError:
        return FileStamp(whole, 0, 0, 0)
    return FileStamp(whole, found.st_size, found.st_mtime_ns, found.st_ino)
