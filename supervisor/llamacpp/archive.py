"""Unpack archives that came from elsewhere, without letting them write elsewhere."""

from __future__ import annotations

import asyncio
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from supervisor.errors import EngineInstallFailed

_YIELD_EVERY = 32  # members; keeps the event loop (and a cancellation) no more than a few milliseconds away


async def unpack_subtree(archive: Path, subtree: str, target: Path) -> None:
    """Put what lies below TOP/`subtree`/ in a tar archive into `target`, TOP being the archive's only folder.

    Raises EngineInstallFailed for a damaged archive, one without that folder, or a member that leads outside.
    """
    prefix_length = 2
    found = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                if len(parts) <= prefix_length or parts[1] != subtree:
                    continue
                inside = member.replace(name="/".join(parts[prefix_length:]), deep=False)
                if member.islnk():
                    inside.linkname = "/".join(PurePosixPath(member.linkname).parts[prefix_length:])
                tar.extract(inside, target, filter="data")
                found += 1
                if found % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise EngineInstallFailed(f"{archive.name} cannot be unpacked: {error}") from error
    if not found:
        raise EngineInstallFailed(f"{archive.name} has no folder {subtree}")


async def unpack_all(archive: Path, target: Path) -> None:
    """Put everything in a tar or zip archive into `target`.

    Raises EngineInstallFailed for a damaged archive or a member that leads outside.
    """
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as bundle:
                for info in bundle.infolist():
                    bundle.extract(info, target)
                    await asyncio.sleep(0)
            return
        with tarfile.open(archive) as tar:
            for member in tar:
                tar.extract(member, target, filter="data")
                await asyncio.sleep(0)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise EngineInstallFailed(f"{archive.name} cannot be unpacked: {error}") from error
