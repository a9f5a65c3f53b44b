"""Folders laid out as for llama-server's router."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.core.gguf import FileKind, kind_of_file
from supervisor.files.folder import FolderModel, left_out, look_inside, passed_over, scan
from tests.support.gguf_bytes import STRING, array, header, pair


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")


def test_files_and_folders_are_models(tmp_path: Path) -> None:
    make(tmp_path, "one.gguf", "notes.txt", "mmproj-one.gguf", "mtp-one.gguf", ".hidden.gguf", "empty/readme.md")
    make(tmp_path, "two/two-Q4.gguf", "two/mmproj-F16.gguf", "two/mtp-two.gguf")
    make(tmp_path, "big/big-00001-of-00002.gguf", "big/big-00002-of-00002.gguf", "big/a-other.gguf")
    make(tmp_path, "flat-00001-of-00002.gguf", "flat-00002-of-00002.gguf", "two/deep/x.gguf")
    assert scan(tmp_path) == (
        FolderModel("big", tmp_path / "big/big-00001-of-00002.gguf"),
        FolderModel("flat", tmp_path / "flat-00001-of-00002.gguf"),
        FolderModel("one", tmp_path / "one.gguf"),
        FolderModel(
            "two", tmp_path / "two/two-Q4.gguf", tmp_path / "two/mmproj-F16.gguf", tmp_path / "two/mtp-two.gguf"
        ),
    )


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert scan(tmp_path / "none") == ()
    assert look_inside(tmp_path, "x") is None


def test_names_that_name_nothing_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "good.gguf", " .gguf", "line\nend.gguf", "esc\x1b[2J.gguf")
    make(tmp_path, "bad\udcff.gguf", "d\udcff/x.gguf", "ok/\udcff.gguf")
    assert scan(tmp_path) == (FolderModel("good", tmp_path / "good.gguf"),)
    assert passed_over(tmp_path) == (" .gguf", "bad\udcff.gguf", "d\udcff", "esc\x1b[2J.gguf", "line\nend.gguf")


def test_what_only_goes_with_a_model_is_none(tmp_path: Path) -> None:
    """By its content, whatever it is called."""
    make(tmp_path, "model.gguf", "in/model.gguf")
    (tmp_path / "adapter.gguf").write_bytes(ADAPTER)
    (tmp_path / "eyes.gguf").write_bytes(EYES)
    (tmp_path / "junk.gguf").write_bytes(b"<html>not found</html>")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "in" / "a-first.gguf").write_bytes(ADAPTER)
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "gone.gguf").symlink_to("nowhere")
    assert scan(tmp_path) == (
        FolderModel("in", tmp_path / "in/model.gguf"),
        FolderModel("model", tmp_path / "model.gguf"),
    )


def test_a_file_that_changes_is_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"<html>")
    assert scan(tmp_path) == ()
    (tmp_path / "x.gguf").write_bytes(b"GGUF and more than before")
    assert [one.name for one in scan(tmp_path)] == ["x"]


ADAPTER = header(pair("general.type", STRING, "adapter"), pair("general.architecture", STRING, "llama"))
EYES = header(pair("general.architecture", STRING, "clip"))
MODEL = header(pair("x", 10, 3), pair("general.architecture", STRING, "llama"), pair("general.type", STRING, "model"))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (ADAPTER, FileKind.ADAPTER),
        (EYES, FileKind.PROJECTOR),
        (header(pair("general.type", STRING, "mmproj")), FileKind.PROJECTOR),
        (header(pair("general.type", STRING, "imatrix")), FileKind.OTHER),
        (header(pair("general.type", STRING, "adapter", ">"), order=">"), FileKind.ADAPTER),
        (MODEL, FileKind.MODEL),
        (header(), FileKind.MODEL),
        (header(array("a", 4, [1]), pair("general.type", STRING, "adapter")), FileKind.MODEL),
        (header(count=1 << 60), FileKind.MODEL),
        (header(b"\xff" * 40, count=3), FileKind.MODEL),
        (b"GGUF", FileKind.MODEL),
        (b"GGU", FileKind.NO_GGUF),
        (b"", FileKind.NO_GGUF),
        (b"PK\x03\x04", FileKind.NO_GGUF),
    ],
)
def test_the_beginning_of_a_file_tells_its_kind(head: bytes, kind: FileKind) -> None:
    assert kind_of_file(head) is kind


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12])
@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_before_the_kind_are_passed_over(kind: int, order: str) -> None:
    told = (pair("a", kind, 1, order), pair("general.type", STRING, "adapter", order))
    assert kind_of_file(header(*told, order=order)) is FileKind.ADAPTER


@pytest.mark.parametrize("whole", [ADAPTER, EYES, MODEL])
def test_a_beginning_cut_anywhere_is_read_as_far_as_it_goes(whole: bytes) -> None:
    for end in range(4, len(whole)):
        assert kind_of_file(whole[:end]) in {FileKind.MODEL, kind_of_file(whole)}


def test_a_link_that_leads_nowhere_hides_no_other_model(tmp_path: Path) -> None:
    make(tmp_path, "good.gguf", "two/x.gguf")
    for folder in (tmp_path, tmp_path / "two"):
        (folder / "bad.gguf").symlink_to("a" * 300)  # the system refuses even to look
    (tmp_path / "round.gguf").symlink_to("round.gguf")
    assert [one.name for one in scan(tmp_path)] == ["good", "two"]
    assert left_out(tmp_path) == (tmp_path / "bad.gguf", tmp_path / "round.gguf")
    assert scan(Path("no\0thing")) == ()
