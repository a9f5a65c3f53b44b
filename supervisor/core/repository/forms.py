"""Check the names that a hub gives before they become paths on this machine.

A repository's files come from git, which knows no `..`, no absolute paths and no NUL: who gives such a name is no hub.
Other names are legal there and trouble here, on one system or another; files of such a name are left out.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.repository.reference import is_repository

MAX_PATH: Final = 1024
"""Bytes of a file's path in a repository."""
MAX_NAME: Final = 255
"""Bytes of one part of it: what file systems allow."""
MAX_SIZE: Final = 1 << 60
"""Bytes of a file: an exbibyte, and no disk is so large."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTENT = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE | re.DOTALL)
_NOT_ON_WINDOWS = frozenset('\\:*?"<>|')


def is_commit(text: str) -> bool:
    """Return whether a text is the hash of a commit."""
    return _COMMIT.fullmatch(text) is not None


def is_sha256(text: str) -> bool:
    """Return whether a text is a sha256, in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def is_content_name(text: str) -> bool:
    """Return whether a text can name a content in the cache; the hub's names are hashes, a mirror's may be others."""
    return _CONTENT.fullmatch(text) is not None


def is_size(size: int) -> bool:
    """Return whether a number can be a file's size in bytes."""
    return 0 <= size <= MAX_SIZE


def leads_elsewhere(path: str) -> bool:
    """Return whether a file's path leaves its folder."""
    return "\0" in path or any(part in {"", ".", ".."} for part in path.split("/"))


def is_plain_path(path: str) -> bool:
    """Return whether a file of this path can be kept on every system and shown as it is."""
    return (
        not leads_elsewhere(path)
        and path.isprintable()
        and _length(path) <= MAX_PATH
        and all(_is_plain_name(part) for part in path.split("/"))
    )


def _is_plain_name(name: str) -> bool:
    return (
        _length(name) <= MAX_NAME
        and not _NOT_ON_WINDOWS & set(name)
        and not name.endswith((".", " "))
        and _DEVICE.fullmatch(name) is None
    )


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


__all__ = [
    "MAX_NAME", "MAX_PATH", "MAX_SIZE",
    "is_commit", "is_content_name", "is_plain_path", "is_repository", "is_sha256", "is_size", "leads_elsewhere",
]  # fmt: skip
