"""Writes files that are either the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

_RANDOM_BYTES = 4


def atomic_write(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace `path` in one step by a file with this content and, but for the umask, this mode.

    durable: return only once the disk has it, so that it is there after a power failure, too.

    What a killed process leaves lies beside it (`scratches`). Raises OSError; nothing is left then.
    """
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(_RANDOM_BYTES)}")
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        scratch.replace(path)
        if durable:
            _sync_folder(path.parent)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Have the disk know the names in a folder, where the system can be asked to."""
    with contextlib.suppress(OSError):  # not on Windows
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def scratches(pattern: str) -> str:
    """Return the pattern of what a killed process left of files of this pattern."""
    return f".{pattern}.{'[0-9a-f]' * (2 * _RANDOM_BYTES)}"
