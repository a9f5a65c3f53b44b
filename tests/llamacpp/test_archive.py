"""Archives are unpacked where they are told to be, and nowhere else."""

from __future__ import annotations

import asyncio
import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.archive import unpack_all, unpack_subtree


def member(name: str, *, link: str | None = None, kind: bytes = tarfile.SYMTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = mode
    if link is not None:
        info.type, info.linkname = kind, link
    else:
        info.size = len(name)
    return info


def make_tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(info.name.encode()) if info.size else None)
    return path


def test_only_the_subtree(tmp_path: Path) -> None:
    archive = make_tar(
        tmp_path / "a.tar.gz",
        member("top/setup.py"),
        member("top/llama.cpp/CMakeLists.txt"),
        member("top/llama.cpp/src/a.cpp"),
        member("top/llama.cpp/src/link", link="a.cpp"),
        member("top/llama.cpp/hard", link="top/llama.cpp/src/a.cpp", kind=tarfile.LNKTYPE),
        member("top/llama.cpp-not/x"),
    )
    target = tmp_path / "source"
    asyncio.run(unpack_subtree(archive, "llama.cpp", target))
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert found == ["CMakeLists.txt", "hard", "src", "src/a.cpp", "src/link"]
    assert (target / "src" / "link").read_text() == (target / "hard").read_text() == "top/llama.cpp/src/a.cpp"


def test_programs_stay_executable(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "a.tar.gz", member("top/llama-server", mode=0o755))
    asyncio.run(unpack_all(archive, tmp_path / "out"))
    assert (tmp_path / "out" / "top" / "llama-server").stat().st_mode & 0o100


@pytest.mark.parametrize(
    "hostile",
    [
        member("top/llama.cpp/../../../escaped"),
        member("top/llama.cpp/link", link="/etc/passwd"),
        member("top/llama.cpp/link", link="../../../escaped"),
    ],
)
def test_what_leads_outside_is_refused(tmp_path: Path, hostile: tarfile.TarInfo) -> None:
    archive = make_tar(tmp_path / "a.tar.gz", hostile)
    for unpack in (unpack_subtree(archive, "llama.cpp", tmp_path / "x"), unpack_all(archive, tmp_path / "y")):
        with pytest.raises(EngineInstallFailed, match="cannot be unpacked"):
            asyncio.run(unpack)
    assert not list(tmp_path.rglob("escaped"))


def test_damage_is_named(tmp_path: Path) -> None:
    whole = make_tar(tmp_path / "a.tar.gz", *(member(f"top/llama.cpp/{n}") for n in range(2000)))
    content = whole.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"no archive"):
        whole.write_bytes(damaged)
        with pytest.raises(EngineInstallFailed, match=r"a\.tar\.gz cannot be unpacked"):
            asyncio.run(unpack_subtree(whole, "llama.cpp", tmp_path / "out"))


def test_damage_within_any_compression_is_named(tmp_path: Path) -> None:
    """An archive may be compressed in another way than its name says."""
    noise = random.Random(1).randbytes(1 << 20)
    for kind in ("bz2", "xz"):
        path = tmp_path / "a.tar.gz"
        large = member("top/x")
        large.size = len(noise)
        with tarfile.open(path, f"w:{kind}") as tar:  # type: ignore[call-overload]  # any of them
            tar.addfile(large, io.BytesIO(noise))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
        with pytest.raises(EngineInstallFailed, match="cannot be unpacked"):
            asyncio.run(unpack_all(path, tmp_path / kind))


def test_an_archive_without_the_subtree(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "a.tar.gz", member("top/setup.py"))
    with pytest.raises(EngineInstallFailed, match=r"has no folder llama\.cpp"):
        asyncio.run(unpack_subtree(archive, "llama.cpp", tmp_path / "out"))


def test_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        bundle.writestr("llama-server.exe", "x")
        bundle.writestr("../escaped", "x")
    asyncio.run(unpack_all(tmp_path / "a.zip", tmp_path / "out" / "here"))
    assert (tmp_path / "out" / "here" / "llama-server.exe").is_file()
    assert not (tmp_path / "out" / "escaped").exists()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_names_and_notes_of_members_are_bounded(tmp_path: Path, kind: bytes) -> None:
    note = tarfile.TarInfo("note")
    note.type, note.size = kind, 1 << 24
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(note, io.BytesIO(bytes(note.size)))
        tar.addfile(member("top/x"), io.BytesIO(b"top/x"))
    with pytest.raises(EngineInstallFailed, match="a name or a note in it has 16777216 bytes"):
        asyncio.run(unpack_all(path, tmp_path / "out"))


def test_long_names_within_the_bound_are_taken(tmp_path: Path) -> None:
    name = "top/" + "/".join(["x" * 100] * 3)
    archive = make_tar(tmp_path / "a.tar.gz", member(name))
    asyncio.run(unpack_all(archive, tmp_path / "out"))
    assert (tmp_path / "out" / name).read_text() == name


@pytest.mark.parametrize("link", ["../b", "a/../../b", "/etc", "a/.."])
def test_a_link_leads_to_its_own_folder_or_below(tmp_path: Path, link: str) -> None:
    """Also one that leads to nothing outside by itself: several in a row may."""
    archive = make_tar(tmp_path / "a.tar.gz", member("top/llama.cpp/a/x", link=link))
    for unpack in (unpack_subtree(archive, "llama.cpp", tmp_path / "x"), unpack_all(archive, tmp_path / "y")):
        with pytest.raises(EngineInstallFailed, match="cannot be unpacked: the link"):
            asyncio.run(unpack)
