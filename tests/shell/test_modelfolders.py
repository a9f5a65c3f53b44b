"""Folders laid out as for llama-server's router."""

from __future__ import annotations

from pathlib import Path

from supervisor.modelfolders import Found, look_inside, passed_over, scan


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_files_and_folders_are_models(tmp_path: Path) -> None:
    make(tmp_path, "one.gguf", "notes.txt", "mmproj-one.gguf", "mtp-one.gguf", ".hidden.gguf", "empty/readme.md")
    make(tmp_path, "two/two-Q4.gguf", "two/mmproj-F16.gguf", "two/mtp-two.gguf")
    make(tmp_path, "big/big-00001-of-00002.gguf", "big/big-00002-of-00002.gguf", "big/a-other.gguf")
    make(tmp_path, "flat-00001-of-00002.gguf", "flat-00002-of-00002.gguf", "two/deep/x.gguf")
    assert scan(tmp_path) == (
        Found("big", tmp_path / "big/big-00001-of-00002.gguf"),
        Found("flat", tmp_path / "flat-00001-of-00002.gguf"),
        Found("one", tmp_path / "one.gguf"),
        Found("two", tmp_path / "two/two-Q4.gguf", tmp_path / "two/mmproj-F16.gguf", tmp_path / "two/mtp-two.gguf"),
    )


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert scan(tmp_path / "none") == ()
    assert look_inside(tmp_path, "x") is None


def test_names_that_name_nothing_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "good.gguf", " .gguf", "line\nend.gguf", "esc\x1b[2J.gguf")
    make(tmp_path, "bad\udcff.gguf", "d\udcff/x.gguf", "ok/\udcff.gguf")
    assert scan(tmp_path) == (Found("good", tmp_path / "good.gguf"),)
    assert passed_over(tmp_path) == (" .gguf", "bad\udcff.gguf", "d\udcff", "esc\x1b[2J.gguf", "line\nend.gguf")
