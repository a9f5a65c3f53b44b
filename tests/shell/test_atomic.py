"""Files that are either the old one or the new one."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.store.keyfile import KeyFile
from supervisor.system.atomic import atomic_write, scratches

# Writes more than this process may, in a child: the kernel fails the write, or kills the writer where it may.
_TOO_MUCH = """
import resource, signal, sys
from pathlib import Path
from supervisor.system.atomic import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_DFL if sys.argv[2] == "killed" else signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
atomic_write(Path(sys.argv[1]), b"new" * 1000)
"""


def _too_much(path: Path, how: str) -> int:
    argv = [sys.executable, "-B", "-c", _TOO_MUCH, str(path), how]
    return subprocess.run(argv, check=False, stderr=subprocess.DEVNULL).returncode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_bytes(b"old")
    return tmp_path / "a.json"


def test_the_new_file_takes_the_old_ones_place(path: Path) -> None:
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["a.json"]


def test_others_may_read_what_is_meant_for_them(path: Path) -> None:
    before = os.umask(0o022)
    try:
        atomic_write(path, b"new", mode=0o666)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    assert _too_much(path, "fails") == 1
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["a.json"]


def test_what_a_killed_writer_leaves_is_found_by_its_pattern(path: Path) -> None:
    assert _too_much(path, "killed") == -signal.SIGXFSZ
    assert path.read_bytes() == b"old"
    (left,) = path.parent.glob(scratches("*.json"))
    assert set(path.parent.iterdir()) == {path, left}


def test_what_is_to_outlast_a_power_failure_is_on_the_disk_before_it_has_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bytes]] = []
    monkeypatch.setattr(os, "fsync", lambda of: seen.append((stat.S_ISDIR(os.fstat(of).st_mode), path.read_bytes())))
    atomic_write(path, b"new")
    assert not seen
    atomic_write(path, b"newer", durable=True)
    assert seen == [(False, b"new"), (True, b"newer")]


def test_a_key_that_was_revoked_stays_so_after_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    KeyFile(tmp_path / "state" / "keys.json").write([])
    assert len(synced) == 2
