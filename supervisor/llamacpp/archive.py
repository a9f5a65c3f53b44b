"""Unpack archives that came from elsewhere: they write nowhere else, and no more than an engine could need.

An archive is unpacked in a thread, into a fresh folder of ours. What it announces is added up before anything of a
member is written, so that one that swells ends where its limit is. No more is read for a member than it announces:
otherwise maps of holes, and links to what is not there, would have more written than was added up.
"""

from __future__ import annotations

import asyncio
import lzma
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, cast

from supervisor.errors import EngineInstallFailed


@dataclass(frozen=True)
class Most:
    """The limits for all members of an archive together: their number and bytes."""

    members: int = 200_000
    size: int = 16 << 30


class _Swollen(Exception):
    pass


class _Outside(Exception):
    pass


class _Stopped(Exception):
    pass


_PIECE = 1 << 16  # bytes; the longest name or note, and what is passed over at once
_NOTES = 1 << 18  # bytes of all names and notes of a member
_DIRECTORY = 64 << 20  # bytes of the list of a zip archive's members: 300 for each that may be in it


class _Sum:
    """Adds members up, and what is read for them."""

    def __init__(self, most: Most) -> None:
        self._most = most
        self._members = 0
        self._size = 0
        self._left = _NOTES
        self._stop = threading.Event()

    def stop(self) -> None:
        """Have the next step raise _Stopped. For another thread."""
        self._stop.set()

    def add(self, size: int) -> None:
        """Count a member, whose bytes may now be read. Raises _Swollen, _Stopped."""
        self.check()
        self._members += 1
        self._size += max(0, size)
        self._left = max(0, size) + _NOTES
        if self._members > self._most.members:
            raise _Swollen(f"it has more than {self._most.members} members")
        if self._size > self._most.size:
            raise _Swollen(f"its members take more than {self._most.size} bytes")

    def read(self, size: int) -> None:
        """Count bytes that were read. Raises _Swollen, _Stopped."""
        self.check()
        self._left -= size
        if self._left < 0:
            raise _Swollen("a member of it takes more than it announces")

    def check(self) -> None:
        """Raise _Stopped once nobody wants it any more."""
        if self._stop.is_set():
            raise _Stopped


class _Counted:
    """The uncompressed bytes of a tar archive, read from the beginning to the end.

    tarfile reads names and notes whole before anybody sees them, and contents in pieces of 16 KiB.
    """

    def __init__(self, file: IO[bytes], count: _Sum) -> None:
        self._file = file
        self._count = count

    def read(self, size: int) -> bytes:
        """Read so many bytes. Raises _Swollen, _Stopped."""
        if size > _PIECE:
            raise _Swollen(f"a name or a note in it has {size} bytes")
        piece = self._file.read(size)
        self._count.read(len(piece))
        return piece

    def seek(self, place: int) -> None:
        """Go on to a place, and read what is before it. Raises _Swollen, _Stopped."""
        left = place - self._file.tell()
        if left < 0:
            self._file.seek(place)  # by a byte: tarfile looks whether the last one of a member is there
        while left > 0 and (piece := self.read(min(left, _PIECE))):
            left -= len(piece)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class _Archive(tarfile.TarFile):
    """An archive of which nothing is read uncounted, whatever its compression."""

    def __init__(self, name: str | None, mode: Literal["r"], fileobj: IO[bytes], *, count: _Sum, **more: Any) -> None:
        super().__init__(name, mode, cast(IO[bytes], _Counted(fileobj, count)), **more)


@contextmanager
def _members(archive: Path, count: _Sum) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    opening = cast(Callable[..., tarfile.TarFile], _Archive.open)  # what it does not know itself goes to `__init__`
    with archive.open("rb") as file, opening(fileobj=file, count=count) as tar:

        def each() -> Iterator[tarfile.TarInfo]:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # not in its stub: members, kept with all their notes
                count.add(member.size)
                yield member

        yield tar, each()


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write a member. A link leads to its own folder or below, so no chain of links leads outside. Raises _Outside."""
    led = PurePosixPath(member.linkname)
    if member.issym() and (led.is_absolute() or ".." in led.parts):
        raise _Outside(f"the link {member.name!r} leads to {member.linkname!r}")
    tar.extract(member, target, filter="data")


class _Zipped:
    """A zip archive. zipfile reads the list of its members at once, and each of them in small pieces."""

    def __init__(self, file: IO[bytes], count: _Sum) -> None:
        self._file = file
        self._count = count

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes; negative: the rest. Raises _Swollen, _Stopped."""
        self._count.check()
        piece = self._file.read(_DIRECTORY + 1 if size < 0 else min(size, _DIRECTORY + 1))
        if len(piece) > _DIRECTORY:
            raise _Swollen(f"the list of its members has more than {_DIRECTORY} bytes")
        return piece

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError, zlib.error, _Swollen, _Outside),
    *(LookupError, ValueError, RuntimeError),  # links to nothing; names, methods and passwords that nobody knows
    *(lzma.LZMAError, struct.error, ArithmeticError, MemoryError),  # an xz member's own, dates of no calendar
)


async def unpack_subtree(archive: Path, subtree: str, target: Path, most: Most = Most()) -> None:
    """Put what lies below TOP/`subtree`/ in a tar archive into `target`, TOP being the archive's only folder.

    Raises EngineInstallFailed for a damaged archive, one without that folder, a member that leads outside, or more than
    `most`.
    """

    def work(count: _Sum) -> None:
        if not _unpack_below(archive, subtree, target, count):
            raise EngineInstallFailed(f"{archive.name} has no folder {subtree}")

    await _aside(archive, work, most)


async def unpack_all(archive: Path, target: Path, most: Most = Most()) -> None:
    """Put everything in a tar or zip archive into `target`.

    Raises EngineInstallFailed for a damaged archive, a member that leads outside, or more than `most`.
    """

    def work(count: _Sum) -> None:
        if archive.suffix == ".zip":
            _unpack_zip(archive, target, count)
            return
        with _members(archive, count) as (tar, members):
            for member in members:
                _put(tar, member, target)

    await _aside(archive, work, most)


async def _aside(archive: Path, work: Callable[[_Sum], None], most: Most) -> None:
    """Unpack in a thread, which has ended when this ends, also when it is cancelled. Raises EngineInstallFailed."""
    count = _Sum(most)
    doing = asyncio.ensure_future(asyncio.to_thread(work, count))
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        count.stop()
        await asyncio.wait({doing})
        if not doing.cancelled():
            doing.exception()  # that it stopped is no news
        raise
    except _BROKEN as error:
        raise EngineInstallFailed(f"{archive.name} cannot be unpacked: {error}") from error


def _unpack_below(archive: Path, subtree: str, target: Path, count: _Sum) -> int:
    """Unpack a folder of the archive's only folder; return how many members it has."""
    prefix_length = 2
    found = 0
    with _members(archive, count) as (tar, members):
        for member in members:
            parts = PurePosixPath(member.name).parts
            if len(parts) <= prefix_length or parts[1] != subtree:
                continue
            inside = member.replace(name="/".join(parts[prefix_length:]), deep=False)
            if member.islnk():
                inside.linkname = "/".join(PurePosixPath(member.linkname).parts[prefix_length:])
            _put(tar, inside, target)
            found += 1
    return found


def _unpack_zip(archive: Path, target: Path, count: _Sum) -> None:
    with archive.open("rb") as file, zipfile.ZipFile(cast(IO[bytes], _Zipped(file, count))) as bundle:
        for info in bundle.infolist():
            count.add(info.file_size)  # zipfile reads no more than this of a member
            bundle.extract(info, target)
