"""The names of files in the hub's cache that hold the beginning of a content."""

from __future__ import annotations

from pathlib import Path

SUFFIX = ".partial.incomplete"


def partial_of(blobs: Path, etag: str) -> Path:
    """Return the file in which the beginning of a content is kept."""
    return blobs / f"{etag}{SUFFIX}"
