"""Folders of ours: never changed where they were there, never shared with others, marked once."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from supervisor.daemon.lock import daemon_lock
from supervisor.errors import FolderRefused
from supervisor.system.owned import (
    MARKER,
    inner_folder,
    keep_newest,
    own_folder,
    private_folder,
    read_marker,
    shared_folder,
)
from supervisor.system.paths import places


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_private_and_marked(tmp_path: Path) -> None:
    for make in (own_folder, private_folder, inner_folder):
        folder = make(tmp_path / make.__name__ / "inner")
        assert mode(folder) == 0o700
    marker = read_marker(own_folder(tmp_path / "new"))
    assert marker is not None
    assert (marker.made, marker.before) == (True, frozenset())
    assert mode(tmp_path / "new" / MARKER) == 0o600


@pytest.mark.parametrize("make", [own_folder, private_folder, inner_folder, shared_folder])
@pytest.mark.parametrize("bits", [0o700, 0o755, 0o750, 0o775, 0o1777, 0o777, 0o770])
def test_the_mode_of_a_folder_that_is_there_never_changes(tmp_path: Path, make: object, bits: int) -> None:
    folder = tmp_path / "chosen"
    folder.mkdir()
    folder.chmod(bits)
    assert callable(make)
    forbidden = {own_folder: 0o022, inner_folder: 0o022, private_folder: 0o077, shared_folder: 0}[make]
    if bits & forbidden:
        with pytest.raises(FolderRefused, match="chmod 700"):
            make(folder)
    else:
        make(folder)
    assert mode(folder) == bits


def test_a_daemon_refuses_a_folder_that_others_can_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(FolderRefused), daemon_lock(places({"SUPERVISOR_HOME": str(tmp_path)})):
        pass
    assert mode(tmp_path) == 0o1777
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("open")
    with pytest.raises(FolderRefused):
        own_folder(tmp_path / "link")
    assert mode(tmp_path / "open") == 0o777


def test_the_marker_says_what_was_there_and_stays_the_same(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    own_folder(tmp_path)
    first = read_marker(tmp_path)
    (tmp_path / "later").touch()
    own_folder(tmp_path)
    assert first is not None
    assert (first.made, first.before) == (False, frozenset({"thesis.tex"}))
    assert read_marker(tmp_path) == first


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_whichever_of_ours_comes_first_all_of_them_are_ours(tmp_path: Path, umask: int) -> None:
    where = places({"SUPERVISOR_HOME": str(tmp_path / "new" / "home")})
    before = os.umask(umask)
    try:
        inner_folder(where.cache / "headers")
        own_folder(where.state)
    finally:
        os.umask(before)
    marker = read_marker(where.state)
    assert marker is not None
    assert (marker.made, marker.before) == (True, frozenset())
    assert {mode(folder) for folder in (where.state, where.cache, where.cache / "headers")} == {0o700}


def test_many_at_once_agree_on_one_marker(tmp_path: Path) -> None:
    def take(number: int) -> None:
        own_folder(tmp_path / "one")
        (tmp_path / "one" / f"{number}").touch()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(take, range(32)))
    marker = read_marker(tmp_path / "one")
    assert marker is not None
    assert marker.before == frozenset()


def test_a_marker_that_finds_no_room_is_written_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", full)
        with pytest.raises(OSError, match="No space"):
            own_folder(tmp_path / "new")
    assert read_marker(own_folder(tmp_path / "new")) is not None


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 4711, 4711)
    with pytest.raises(FolderRefused, match="another user"):
        own_folder(tmp_path / "theirs")


@pytest.mark.parametrize(("most", "most_bytes", "kept"), [(9, None, 4), (3, None, 3), (9, 25, 2), (1, 25, 1)])
def test_of_many_files_the_newest_stay(tmp_path: Path, most: int, most_bytes: int | None, kept: int) -> None:
    files = [tmp_path / str(number) for number in range(4)]
    for number, file in enumerate(files):
        file.write_bytes(bytes(10))
        os.utime(file, ns=(number, number))
    keep_newest(tmp_path.iterdir(), most, most_bytes)
    assert sorted(tmp_path.iterdir()) == files[4 - kept :]


def test_what_lay_in_an_inner_folder_before_is_never_pruned(tmp_path: Path) -> None:
    """Somebody may name a folder for the program in which there are `logs` of something else."""
    logs = tmp_path / "state" / "logs"
    logs.mkdir(parents=True)
    for name in ("a.log", "b.log", "c.log"):
        (logs / name).touch()
    own_folder(tmp_path / "state")
    keep_newest(logs.glob("*.log"), 1)
    assert len(list(logs.glob("*.log"))) == 3, "nothing in it is ours yet"
    inner_folder(logs)
    for number, name in enumerate(("d.log", "e.log")):
        (logs / name).touch()
        os.utime(logs / name, ns=(number, number))
    keep_newest(logs.glob("*.log"), 1)
    assert sorted(path.name for path in logs.glob("*.log")) == ["a.log", "b.log", "c.log", "e.log"]
