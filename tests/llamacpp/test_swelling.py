"""Archives that become more than they announce, and those that take their time."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.archive import Most, unpack_all, unpack_subtree
from tests.support.daemon import wait_until

MIB = 1 << 20
MOST = Most(size=4 * MIB)


def written(folder: Path) -> int:
    """Bytes on the disk below a folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def with_holes(path: Path, stored: int, announced: int) -> Path:
    """An archive whose member has a map of holes, by which other bytes come than it announces."""
    info = tarfile.TarInfo("top/in/a")
    info.size = stored
    sparse = {"size": str(announced), "realsize": str(announced), "map": f"0,{stored}", "name": "top/in/a"}
    info.pax_headers = {f"GNU.sparse.{name}": value for name, value in sparse.items()}
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(bytes(stored)))
    return path


def with_links(path: Path, size: int) -> Path:
    """An archive with links to a member, by a way that is not there: each would be another copy of it."""
    info = tarfile.TarInfo("top/in/a")
    info.size = size
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(info, io.BytesIO(bytes(size)))
        for number in range(20):
            link = tarfile.TarInfo(f"top/in/{number}")
            link.type, link.linkname = tarfile.LNKTYPE, "top/in/none/../a"
            tar.addfile(link)
    return path


def with_notes(path: Path, members: int) -> Path:
    """An archive whose members have long notes and no content."""
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for _ in range(members):
            info = tarfile.TarInfo("top/in/a")
            info.pax_headers = {"comment": "x" * 60_000}
            tar.addfile(info)
    return path


@pytest.mark.parametrize("announced", [0, 1, MIB])
def test_no_more_is_written_than_a_member_announces(announced: int, tmp_path: Path) -> None:
    archive = with_holes(tmp_path / "a.tar.gz", 64 * MIB, announced)
    for unpack in (unpack_all(archive, tmp_path / "all", MOST), unpack_subtree(archive, "in", tmp_path / "in", MOST)):
        with pytest.raises(EngineInstallFailed, match="more than it announces"):
            asyncio.run(unpack)
    assert written(tmp_path / "all") + written(tmp_path / "in") < 4 * MIB


def test_what_is_passed_over_is_counted_as_well(tmp_path: Path) -> None:
    archive = with_holes(tmp_path / "a.tar.gz", 64 * MIB, 0)
    with pytest.raises(EngineInstallFailed, match="more than it announces"):
        asyncio.run(unpack_subtree(archive, "other", tmp_path / "out", MOST))


def test_a_link_is_no_copy(tmp_path: Path) -> None:
    archive = with_links(tmp_path / "a.tar.gz", 2 * MIB)
    with pytest.raises(EngineInstallFailed):
        asyncio.run(unpack_all(archive, tmp_path / "out", MOST))
    assert written(tmp_path / "out") < 4 * MIB


def test_notes_of_members_are_not_kept(tmp_path: Path) -> None:
    archive = with_notes(tmp_path / "a.tar.gz", 500)
    tracemalloc.start()
    try:
        asyncio.run(unpack_all(archive, tmp_path / "out"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * MIB, "30 MB of notes"


def test_the_list_of_a_zip_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.llamacpp.archive._DIRECTORY", 1 << 17)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        for number in range(1000):
            bundle.writestr(f"{number:0200}", "")
    with pytest.raises(EngineInstallFailed, match="the list of its members"):
        asyncio.run(unpack_all(tmp_path / "a.zip", tmp_path / "out"))


def test_others_have_their_turn_while_one_large_member_is_unpacked(tmp_path: Path) -> None:
    """The daemon installs on the loop on which it relays."""
    info = tarfile.TarInfo("top/a")
    info.size = 64 * MIB
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", compresslevel=1) as tar:
        tar.addfile(info, io.BytesIO(bytes(info.size)))

    async def scenario() -> int:
        unpacking = asyncio.create_task(unpack_all(tmp_path / "a.tar.gz", tmp_path / "out"))
        turns = 0
        while not unpacking.done():
            turns += 1
            await asyncio.sleep(0)
        await unpacking
        return turns

    assert asyncio.run(scenario()) > 10


def test_unpacking_ends_when_nobody_wants_it(tmp_path: Path) -> None:
    """Behind its first member are 64 GiB to pass over, of holes, and then another one."""
    large = 64 << 30
    archive = tmp_path / "a.tar"
    with archive.open("wb") as file:
        for name, size in (("top/in/first", 0), ("top/large", large), ("top/in/last", 0)):
            info = tarfile.TarInfo(name)
            info.size = size
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.seek(size, os.SEEK_CUR)
        file.truncate(file.tell() + 1024)

    async def scenario() -> None:
        unpacking = asyncio.create_task(unpack_subtree(archive, "in", tmp_path / "out", Most(size=2 * large)))
        await asyncio.to_thread(wait_until, (tmp_path / "out" / "first").exists, "the first member is there")
        unpacking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unpacking

    asyncio.run(scenario())
    assert not (tmp_path / "out" / "last").exists()
