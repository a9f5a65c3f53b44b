"""What pip prints while it installs, as progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.errors import FolderRefused
from supervisor.llamacpp.mlxlm import _replace as replace_mlx
from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.wheels import PipLines, _replace
from supervisor.system.owned import shared_folder

SAID = """\
Collecting cmake
  Downloading cmake-4.1.0-py3-none-manylinux2014_x86_64.whl (29.7 MB)
Progress 0 of 29700000
Progress 14850000 of 29700000
Progress 29700000 of 29700000
Processing /wheels/ninja-1.13.0-py3-none-any.whl
Progress made of 3
Installing collected packages: ninja, cmake
Successfully installed cmake-4.1.0 ninja-1.13.0
"""


def test_pip_says_what_it_downloads_and_how_much_is_there() -> None:
    heard, told = PipLines(), list[Progress]()
    for line in SAID.splitlines():
        heard.tell(line, told.append)
    cmake = "cmake-4.1.0-py3-none-manylinux2014_x86_64.whl (29.7 MB)"
    assert told == [
        Progress("download", None, cmake),
        Progress("download", 0.0, cmake),
        Progress("download", 0.5, cmake),
        Progress("download", 1.0, cmake),
        Progress("download", None, "ninja-1.13.0-py3-none-any.whl"),
        Progress("install", None, "ninja, cmake"),
    ]


def test_a_folder_of_tools_that_was_there_before_the_program_stays(tmp_path: Path) -> None:
    (tmp_path / "tools" / "mine").mkdir(parents=True)
    shared_folder(tmp_path)
    made = tmp_path / "scratch" / "made"
    made.mkdir(parents=True)
    with pytest.raises(FolderRefused, match="was there before"):
        _replace(tmp_path / "tools", made)
    assert (tmp_path / "tools" / "mine").is_dir()


def test_a_folder_of_the_environments_name_that_is_none_of_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "mlx" / "mine").mkdir(parents=True)
    (tmp_path / "made").mkdir()
    with pytest.raises(FolderRefused, match="no environment of this program"):
        replace_mlx(tmp_path / "mlx", tmp_path / "made")
    assert (tmp_path / "mlx" / "mine").is_dir()
