"""Unpack archives that came from elsewhere: they write nowhere else, and no more than an engine could need.

An archive is unpacked by one process of ours into a fresh folder; what it announces is added up before anything of a
member is written, so that one that swells ends where its limit is.
"""

from __future__ import annotations

import asyncio
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, cast

from supervisor.errors import EngineInstallFailed

_YIELD_EVERY = 32  # members; keeps the event loop (and a cancellation) no more than a few milliseconds away


@dataclass(frozen=True)
class Most:
    """The limits for all members of an archive together: their number and bytes."""

    members: int = 200_000
    size: int = 16 << 30


class _Swollen(Exception):
    pass


class _Outside(Exception):
    pass


_LONGEST_READ = 1 << 16


class _Short:
    """A file of which nobody reads much at once: tarfile reads names and notes whole before anybody sees them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """Read so many bytes; tarfile reads contents in pieces of 16 KiB. Raises _Swollen."""
        if size > _LONGEST_READ:
            raise _Swollen(f"a name or a note in it has {size} bytes")
        return self._file.read(size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class _Archive(tarfile.TarFile):
    """An archive whose names and notes are as short as names are, whatever its compression."""

    def __init__(self, name: str | None, mode: Literal["r"], fileobj: IO[bytes], **settings: Any) -> None:
        super().__init__(name, mode, cast(IO[bytes], _Short(fileobj)), **settings)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    with archive.open("rb") as file, _Archive.open(fileobj=file) as tar:
        yield tar


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write a member. A link leads to its own folder or below, so no chain of links leads outside. Raises _Outside."""
    led = PurePosixPath(member.linkname)
    if member.issym() and (led.is_absolute() or ".." in led.parts):
        raise _Outside(f"the link {member.name!r} leads to {member.linkname!r}")
    tar.extract(member, target, filter="data")


class _Sum:
    """Adds members up."""

    def __init__(self, most: Most) -> None:
        self._most = most
        self._members = 0
        self._size = 0

    async def add(self, size: int) -> None:
        """Count a member, and let others have their turn. Raises _Swollen."""
        self._members += 1
        self._size += max(0, size)
        if self._members > self._most.members:
            raise _Swollen(f"it has more than {self._most.members} members")
        if self._size > self._most.size:
            raise _Swollen(f"its members take more than {self._most.size} bytes")
        if self._members % _YIELD_EVERY == 0:
            await asyncio.sleep(0)


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
    prefix_length = 2
    found = 0
    count = _Sum(most)
    try:
        with _opened(archive) as tar:
            for member in tar:
                await count.add(member.size)
                parts = PurePosixPath(member.name).parts
                if len(parts) <= prefix_length or parts[1] != subtree:
                    continue
                inside = member.replace(name="/".join(parts[prefix_length:]), deep=False)
                if member.islnk():
                    inside.linkname = "/".join(PurePosixPath(member.linkname).parts[prefix_length:])
                _put(tar, inside, target)
                found += 1
    except _BROKEN as error:
        raise EngineInstallFailed(f"{archive.name} cannot be unpacked: {error}") from error
    if not found:
        raise EngineInstallFailed(f"{archive.name} has no folder {subtree}")


async def unpack_all(archive: Path, target: Path, most: Most = Most()) -> None:
    """Put everything in a tar or zip archive into `target`.

    Raises EngineInstallFailed for a damaged archive, a member that leads outside, or more than `most`.
    """
    count = _Sum(most)
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as bundle:
                for info in bundle.infolist():
                    await count.add(info.file_size)  # zipfile reads no more than this of a member
                    bundle.extract(info, target)
            return
        with _opened(archive) as tar:
            for member in tar:
                await count.add(member.size)
                _put(tar, member, target)
    except _BROKEN as error:
        raise EngineInstallFailed(f"{archive.name} cannot be unpacked: {error}") from error
