"""Contents of the hub's cache by their SHA-256, opened so that no link leads out of the cache."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from supervisor.core.repository.forms import is_sha256

_MOST_REPOSITORIES: Final = 20_000
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def open_content(cache: Path, sha256: str) -> tuple[int, int] | None:
    """Return a descriptor of the content with this hash, and its size in bytes; None where the cache has none. Blocks.

    Nothing but 64 lower-case hex digits names a content. It is looked for in `models--*/blobs` of the cache folder,
    each step from the folder before it and through no link; what is no plain file is none. Raises OSError where the
    cache cannot be read.
    """
    if not is_sha256(sha256) or os.open not in os.supports_dir_fd:  # not on Windows
        return None
    try:
        folder = os.open(cache, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except FileNotFoundError:
        return None
    try:
        with os.scandir(folder) as found:
            names = [one.name for one in islice(found, _MOST_REPOSITORIES) if one.name.startswith("models--")]
        for name in names:
            with suppress(OSError):
                if (content := _within(folder, name, sha256)) is not None:
                    return content
    finally:
        os.close(folder)
    return None


def _within(cache: int, repository: str, sha256: str) -> tuple[int, int] | None:
    """Return the content where this repository has it. Raises OSError where it has not."""
    place = os.open(repository, _FOLDER, dir_fd=cache)
    try:
        blobs = os.open("blobs", _FOLDER, dir_fd=place)
    finally:
        os.close(place)
    try:
        content = os.open(sha256, _FILE, dir_fd=blobs)
    finally:
        os.close(blobs)
    status = os.fstat(content)
    if stat.S_ISREG(status.st_mode):
        return content, status.st_size
    os.close(content)
    return None
