"""Socket names: short, fresh, private."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from supervisor.errors import EngineStartFailed
from supervisor.system.paths import places
from supervisor.system.sockets import LONGEST_PATH, fresh_socket

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")


def test_names_are_fresh_and_the_folder_is_private(tmp_path: Path) -> None:
    first, second = fresh_socket(tmp_path / "run"), fresh_socket(tmp_path / "run")
    assert first != second
    assert first.parent == tmp_path / "run"
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert not first.exists()


def test_llama_server_takes_only_names_with_this_ending(tmp_path: Path) -> None:
    assert fresh_socket(tmp_path).suffix == ".sock"


@pytest.mark.parametrize("variable", ["HOME", "XDG_RUNTIME_DIR"])
def test_very_long_folders_still_give_a_socket_that_can_be_bound(tmp_path: Path, variable: str) -> None:
    long = tmp_path / ("very-long-" * 20) / ("name-" * 20)
    long.mkdir(parents=True)
    path = fresh_socket(places({"HOME": str(tmp_path), variable: str(long)}).runtime)
    assert len(os.fsencode(path)) <= LONGEST_PATH
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    path.unlink()


def test_a_folder_that_is_too_long_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(EngineStartFailed, match="XDG_RUNTIME_DIR"):
        fresh_socket(tmp_path / ("ü" * 60))


def test_a_folder_that_cannot_be_made_is_an_error_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineStartFailed, match="private folder"):
        fresh_socket(tmp_path / "file")


def test_a_platform_without_unix_sockets_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(EngineStartFailed, match="Linux and macOS do"):
        fresh_socket(tmp_path)
