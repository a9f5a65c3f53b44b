"""Folders of ours: made for their owner alone, marked when they are taken into use, never changed when they were there.

A marker is a small JSON file in the folder: an id, and the names that lay there before. `clean` removes nothing from a
folder without one, and nothing that was there before it. It is the first thing that is written to a folder, so two
processes that begin at the same moment agree on what was there.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from supervisor.errors import FolderRefused

MARKER = ".llama-supervisor"
_MADE_BY = "llama-supervisor"
_MOST_MARKER = 16 << 20  # bytes; one of ours lists the names that lay in a folder
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_INSTEAD = (
    "name a folder that does not exist yet or is yours alone (SUPERVISOR_HOME; for sockets XDG_RUNTIME_DIR), "
    "or make this one yours alone (chmod 700)."
)


@dataclass(frozen=True)
class Marker:
    """The contents of a folder's marker: an id, whether the program made the folder, what lay there already."""

    id: str
    made: bool
    before: frozenset[str]


def own_folder(path: Path) -> Path:
    """Take a folder into use, made for its owner alone where it is not there.

    One that is there stays as it is. Raises FolderRefused where it belongs to somebody else or others can write to it:
    a shared temp folder is open to squatters. Other OSErrors mean that it cannot be made.
    """
    made = _made(path, 0o700)
    _check(path, _OTHERS_WRITE)
    return _marked(path, made=made)


def private_folder(path: Path) -> Path:
    """Take a folder into use as `own_folder` does. Raises FolderRefused where others can look into it."""
    own_folder(path)
    _check(path, stat.S_IRWXG | stat.S_IRWXO)
    return path


def inner_folder(path: Path) -> Path:
    """Make a folder within one of ours, and take it into use where it is not there. Raises as `own_folder`."""
    if not path.parent.exists():
        own_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    _check(path, _OTHERS_WRITE)
    if _lay_before(path):
        _marked(path, made=False)  # what lies in it now is never ours to remove
    return path


def shared_folder(path: Path) -> Path:
    """Take a folder into use that others may read, or write to where that was set up so; its parent too if missing."""
    if not path.parent.exists():
        _marked(path.parent, made=_made(path.parent, 0o755))
    return _marked(path, made=_made(path, 0o755))


def keep_newest(files: Iterable[Path], most: int, most_bytes: int | None = None) -> None:
    """Remove all but the newest of these files, as many as that, and together no larger than `most_bytes`.

    Files that lay there before the program do not count, and stay. Never raises: what cannot be removed stays.
    """
    with contextlib.suppress(OSError):
        found = sorted(
            ((path, path.lstat()) for path in written_later(files)), key=lambda one: one[1].st_mtime_ns, reverse=True
        )
        held = accumulate(status.st_size for _, status in found)
        for number, ((path, _), size) in enumerate(zip(found, held, strict=True)):
            if number >= most or (most_bytes is not None and size > most_bytes):
                path.unlink(missing_ok=True)


def written_later(paths: Iterable[Path]) -> list[Path]:
    """Return those that did not lie in their folder before the program took it, or the folder above it, into use."""
    found: dict[Path, Marker | bool | None] = {}

    def is_later(path: Path) -> bool:
        folder = path.parent
        if folder not in found:
            found[folder] = read_marker(folder) or not _lay_before(folder)
        known = found[folder]
        return path.name not in known.before if isinstance(known, Marker) else bool(known)

    return [path for path in paths if is_later(path)]


def _lay_before(path: Path) -> bool:
    """Tell whether it was in a folder of ours before that became ours."""
    above = read_marker(path.parent)
    return above is not None and path.name in above.before


def read_marker(path: Path) -> Marker | None:
    """Read the marker in a folder.

    None where there is none of ours, or it cannot be read, or it or the folder is another user's: in a shared temp
    folder anybody can make a folder of our name.
    """
    try:
        found = json.loads(read_own(path / MARKER, _MOST_MARKER))
        if found["made_by"] != _MADE_BY:
            return None
        return Marker(str(found["id"]), found["made"] is True, frozenset(map(str, found["before"])))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def read_own(path: Path, most: int, *, anybody: bool = False) -> bytes:
    """Return the beginning, up to `most` bytes, of a file that this user has written.

    anybody: of a plain file of another user's, too.

    Raises OSError, PermissionError among them where the file or its folder is another user's, or it is no plain file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags), "rb") as stream:
        found = os.fstat(stream.fileno())
        mine = anybody or (_is_mine(found) and _is_mine(path.parent.stat()))
        if not (stat.S_ISREG(found.st_mode) and mine):
            raise PermissionError(f"{path} is not a file of this user's.")
        return stream.read(most)


def _is_mine(found: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or found.st_uid == os.getuid()


def _check(path: Path, forbidden: int) -> None:
    """Refuse a folder, or a link to one, that is another user's or has one of these bits of its mode set."""
    found = path.stat()
    if hasattr(os, "getuid") and {found.st_uid, path.lstat().st_uid} != {os.getuid()}:
        raise FolderRefused(f"{path} belongs to another user; {_INSTEAD}")
    if found.st_mode & forbidden:
        may = "write to it" if found.st_mode & forbidden & _OTHERS_WRITE else "look into it"
        raise FolderRefused(f"{path} is open: others can {may}. Its mode is left as it is; {_INSTEAD}")


def _made(path: Path, mode: int) -> bool:
    """Make it with this mode where it is not there, and say so; what is missing above it gets the same."""
    for above in reversed(path.parents):
        if not above.exists():
            above.mkdir(mode=mode, exist_ok=True)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    return True


def _marked(path: Path, *, made: bool) -> Path:
    marker = path / MARKER
    if not marker.exists():
        there = set(os.listdir(path)) - {MARKER}
        before = sorted(name for name in there if read_marker(path / name) is None)
        made = made or (bool(there) and not before)  # one of ours within it was made first, and it with that
        content = json.dumps({"made_by": _MADE_BY, "id": uuid.uuid4().hex, "made": made, "before": before})
        with contextlib.suppress(FileExistsError):
            handle = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(handle, "w", encoding="utf-8") as stream:
                    stream.write(content)
            except BaseException:  # a full disk: half a marker would be none for ever
                marker.unlink(missing_ok=True)
                raise
    return path
