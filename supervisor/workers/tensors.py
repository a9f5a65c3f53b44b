"""The tensors that RPC servers have kept, so that a model need not be sent again; llama.cpp itself removes none."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def trim(folder: Path, most_bytes: int) -> int:
    """Remove those that were used least recently until the folder holds at most so much; return the bytes removed.

    Only plain files right in the folder's `rpc` are looked at. What cannot be removed stays.
    """
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder / "rpc") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    found.append((max(info.st_atime, info.st_mtime), info.st_size, entry.path))
    held, removed = sum(size for _, size, _ in found), 0
    for _, size, path in sorted(found):
        if held - removed <= most_bytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += size
    return removed
