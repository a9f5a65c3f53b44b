"""Find what `clean` may remove: tables of what the program writes, and a walk through its folders.

An entry is ours if its folder carries a marker (`system/owned.py`), nothing of its name lay there before the marker was
written, and the tables have a pattern for it. Links are never followed, nor removed: the program makes none. Nor is
anything that somebody has mounted: it lies elsewhere.
Whatever else is found is listed with the reason why it stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from supervisor.llamacpp.store import MANIFEST, SERVER
from supervisor.system.atomic import scratches
from supervisor.system.owned import MARKER, Marker, read_marker
from supervisor.system.paths import Places
from supervisor.system.removal import mount_points, mounted_in

UNMARKED = "no marker says that the program made it or uses it"
BEFORE = "it was there before the program"
LINK = "a link, which is not followed"
UNKNOWN = "not written by the program"
IN_USE = "in use"
MOUNTED = "something is mounted there"

_TRIES = 20  # times that a folder is gone through in which others remove files


@dataclass(frozen=True)
class Kind:
    """The contents that the program gives a folder: files by pattern, folders by pattern, folders that are ours whole.

    What a killed writer left of such a file counts as one.
    """

    files: tuple[str, ...] = ()
    folders: Mapping[str, Kind] = field(default_factory=dict)
    whole: tuple[str, ...] = ()


_DATABASES = ("state.db", "state.db[-.]*", "history.db", "history.db[-.]*", "captures.db", "captures.db[-.]*")
_STATE = Kind(
    files=("endpoint.json", "daemon.lock", "keys.json", "chat_history", *_DATABASES),
    folders={"logs": Kind(("*.log", "*.log.[0-9]")), "children": Kind(("*.json",)), "chats": Kind(("*.md",))},
)
_CACHE = Kind(
    files=("capabilities.json", "engine-digests.json", "demo-*.gguf"),
    folders={
        "headers": Kind(("*.header",)),
        "hub": Kind(("*@*.json",)),
        "kv": Kind(folders={"*": Kind(("*.slot", "*.busy"))}),
    },
)
_ENGINES = Kind(
    files=("chosen.json", ".lock", ".chosen.lock"),
    folders={"downloads": Kind(("*.tar.*", "*.zip", "*.part")), "logs": Kind(("install-*.log",))},
    whole=("scratch", "tools", "cuda"),
)


@dataclass(frozen=True)
class Left:
    """Something that stays, and why."""

    path: Path
    reason: str

    def as_json(self) -> dict[str, object]:
        """Return it in the form of `--json`."""
        return {"path": str(self.path), "reason": self.reason}


@dataclass(frozen=True)
class Leftover:
    """Something of ours: entries below a folder, their bytes, and what stays beside them.

    emptied: folders of ours, inner ones first, which go once nothing is left in them. marker: that of `folder` when it
    was looked at; None: the folder itself is not ours.
    """

    what: str
    folder: Path
    entries: tuple[Path, ...]
    size: int
    left: tuple[Left, ...] = ()
    emptied: tuple[Path, ...] = ()
    marker: Marker | None = None

    def as_json(self) -> dict[str, object]:
        """Return it in the form of `--json`."""
        return {"what": self.what, "paths": [str(path) for path in self.entries], "bytes": self.size}


def leftovers(where: Places, checkout: Path | None, *, keep_engines: bool) -> list[Leftover]:
    """List what the program left on the machine, and what stays; inner folders before those that may hold them."""
    found = [
        _leftover("cache", where.cache, _CACHE, but=where.engines),
        _leftover("sockets", where.runtime, Kind(), extra=_dead_socket),
        _leftover("state", where.state, _STATE, but=where.cache),
    ]
    if not keep_engines:
        found.insert(0, _leftover("engines", where.engines, _ENGINES, extra=_engine))
    if checkout is not None:
        found.append(_environment(checkout))
    return [item for item in found if item.entries or item.left or item.emptied]


def remove(leftover: Leftover) -> None:
    """Remove its entries and folders that this leaves empty; nothing if the folder's marker has changed since."""
    if leftover.marker is not None and read_marker(leftover.folder) != leftover.marker:
        return
    for path in leftover.entries:
        _remove_whole(path)
    for folder in leftover.emptied:
        _fold_up(folder)


def _remove_whole(path: Path) -> None:
    """Remove a file, or a folder in which others remove files meanwhile."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            if _is_folder(path):
                shutil.rmtree(path)
            break
    path.unlink(missing_ok=True)


def _fold_up(folder: Path) -> None:
    """Remove a folder that the program made and that is empty now; of one that it found, only the marker."""
    if not _is_folder(folder):
        return
    marker = read_marker(folder)
    rest = set(os.listdir(folder)) - {MARKER}
    if rest - (marker.before if marker else frozenset()):
        return
    (folder / MARKER).unlink(missing_ok=True)
    if not rest and (marker is None or marker.made):
        with contextlib.suppress(OSError):  # something has come into it
            folder.rmdir()


class _Walk:
    """Goes through one marked folder, sorting what it finds into ours and not ours."""

    def __init__(self, but: Path | None, extra: Callable[[Path], bool | str]) -> None:
        self.but, self.extra = but, extra
        self.mounts = mount_points()
        self.ours: list[Path] = []
        self.left: list[Left] = []
        self.emptied: list[Path] = []

    def look(self, folder: Path, kind: Kind, before: frozenset[str] = frozenset()) -> None:
        for path in sorted(folder.iterdir()):
            if path.name == MARKER or path == self.but:
                continue
            reason = BEFORE if path.name in before else self._judge(path, kind)
            if reason:
                self.left.append(Left(path, reason))

    def _judge(self, path: Path, kind: Kind) -> str:
        """Return why it stays; empty where it is ours, which is noted."""
        if self.but is None or path not in self.but.parents:
            if reason := _why_not(path, self.mounts):
                return reason
        elif path.is_symlink():
            return LINK
        if not _is_folder(path):
            return self._ours(path) if _matches(path, kind.files) else self._other(path)
        inner = next((one for pattern, one in kind.folders.items() if fnmatchcase(path.name, pattern)), None)
        if inner is not None:
            self.look(path, inner)
            self.emptied.append(path)
            return ""
        return self._ours(path) if _matches(path, kind.whole) else self._other(path)

    def _ours(self, path: Path) -> str:
        self.ours.append(path)
        return ""

    def _other(self, path: Path) -> str:
        if self.but is not None and path in self.but.parents:
            return ""  # holds another folder of ours, which is looked at by itself
        found = self.extra(path)
        return self._ours(path) if found is True else found or UNKNOWN


def _leftover(
    what: str, folder: Path, kind: Kind, *, but: Path | None = None, extra: Callable[[Path], bool | str] = lambda _: ""
) -> Leftover:
    if folder.is_symlink():
        return Leftover(what, folder, (), 0, (Left(folder, LINK),))
    if not folder.is_dir():
        return Leftover(what, folder, (), 0)
    marker = read_marker(folder)
    if marker is None:
        return Leftover(what, folder, (), 0, (Left(folder, UNMARKED),))
    walk = _Walk(but, extra)
    walk.look(folder, kind, marker.before)
    emptied = [*walk.emptied, folder, *([folder.parent] if read_marker(folder.parent) else [])]
    return Leftover(what, folder, tuple(walk.ours), _bytes(walk.ours), tuple(walk.left), tuple(emptied), marker)


def _environment(checkout: Path) -> Leftover:
    """List what bin/environment.py made in a checkout: it says so in `.venv/ready`, written last."""
    made = (checkout / ".venv" / "ready").is_file()
    own = [checkout / name for name in (".venv.setup", ".venv")]
    there = [path for path in own if path.is_symlink() or path.is_dir()]
    mounts = mount_points()
    reasons = {path: _why_not(path, mounts) or ("" if made else UNMARKED) for path in there}
    ours = [path for path, reason in reasons.items() if not reason]
    left = tuple(Left(path, reason) for path, reason in reasons.items() if reason)
    return Leftover("environment", checkout, tuple(ours), _bytes(ours), left)


def _why_not(path: Path, mounts: frozenset[Path]) -> str:
    """Return why it stays, whatever its name says; empty: nothing speaks for that."""
    if path.is_symlink():
        return LINK
    return MOUNTED if mounted_in(path, mounts) else ""


def _engine(path: Path) -> bool:
    """Tell whether it is an engine: a folder of the store's with a manifest and a llama-server."""
    return _is_folder(path) and (path / MANIFEST).is_file() and (path / "bin" / SERVER).is_file()


def _dead_socket(path: Path) -> bool | str:
    """Tell whether it is a socket without a listener; daemons with other state folders share the runtime folder."""
    if path.suffix != ".sock" or not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a listener that takes nobody
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return IN_USE
    return IN_USE


def _matches(path: Path, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path.name, one) for pattern in patterns for one in (pattern, scratches(pattern)))


def _is_folder(path: Path) -> bool:
    """Tell a folder from a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _bytes(paths: Iterable[Path]) -> int:
    """Sum the bytes of files and of all files below folders; links count as themselves, what has gone as nothing."""
    return sum(_size(file) for path in paths for file in _files(path))


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _files(path: Path) -> Iterator[Path]:
    if not _is_folder(path):
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)
