"""Model files on disk: single, split, missing, wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.errors import GgufError, ModelFileError, ShardMissing
from supervisor.files.model_file import open_model
from tests.support.gguf_bytes import STRING, header, model, pair, split_header, tensor

_FACTS = pair("general.architecture", STRING, "llama")


def write_parts(folder: Path, count: int) -> list[Path]:
    parts = [folder / f"big-Q4_K_M-{n:05d}-of-{count:05d}.gguf" for n in range(1, count + 1)]
    for number, part in enumerate(parts):
        part.write_bytes(split_header(number, count, *([_FACTS] if number == 0 else [])) + bytes(10 * number))
    return parts


def test_a_single_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(_FACTS) + bytes(100))
    found = open_model(path)
    assert (found.path, found.parts) == (path, (path,))
    assert found.header.architecture == "llama"
    assert found.size_bytes == path.stat().st_size


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(header(_FACTS))
    monkeypatch.chdir(tmp_path)
    assert open_model(Path("model.gguf")).path == tmp_path / "model.gguf"


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_opens_the_whole_model_from_its_first(tmp_path: Path, given: int) -> None:
    parts = write_parts(tmp_path, 3)
    found = open_model(parts[given])
    assert found.path == parts[0]
    assert found.parts == tuple(parts)
    assert found.header.architecture == "llama"
    assert found.size_bytes == sum(part.stat().st_size for part in parts)


def test_parts_that_are_links_into_a_store(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for number, part in enumerate(write_parts(tmp_path, 2)):
        blob = part.rename(tmp_path / "blobs" / f"{number}abc")
        (tmp_path / "snapshot" / part.name).symlink_to(blob)
    found = open_model(tmp_path / "snapshot" / "big-Q4_K_M-00002-of-00002.gguf")
    assert found.path == tmp_path / "snapshot" / "big-Q4_K_M-00001-of-00002.gguf"


def test_the_header_has_the_tensors_of_all_parts(tmp_path: Path) -> None:
    facts = [[pair("split.no", 2, n), pair("split.count", 2, 2), pair("split.tensors.count", 5, 2)] for n in range(2)]
    for n in range(2):
        content = model([*facts[n], _FACTS], [tensor(f"t{n}", [1], 0, 0)], 4)
        (tmp_path / f"two-{n + 1:05d}-of-00002.gguf").write_bytes(content)
    found = open_model(tmp_path / "two-00001-of-00002.gguf")
    assert [t.name for t in found.header.tensors] == ["t0", "t1"]
    assert found.header.file_size == found.size_bytes
    content = model([*facts[1], _FACTS], [tensor("t0", [1], 0, 0)], 4)
    (tmp_path / "two-00002-of-00002.gguf").write_bytes(content)
    with pytest.raises(GgufError, match=r"two-00001-of-00002.gguf: part 2: an earlier part has the tensor 't0' too"):
        open_model(tmp_path / "two-00001-of-00002.gguf")


def test_a_file_for_other_machines(tmp_path: Path) -> None:
    order, name = (">", "big") if sys.byteorder == "little" else ("<", "little")
    path = tmp_path / "model.gguf"
    path.write_bytes(model([pair("general.architecture", STRING, "llama", order)], [], 0, order))
    with pytest.raises(GgufError, match=f"{name}-endian file, this machine is {sys.byteorder}-endian"):
        open_model(path)
    assert open_model(path, any_byte_order=True).header.byte_order == name


def test_tensors_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(model([_FACTS], [tensor("t", [100], 0, 0)], 399))
    with pytest.raises(GgufError, match="t: its data ends 1 bytes after the file"):
        open_model(path)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, 3)
    parts[1].unlink()
    with pytest.raises(ShardMissing, match=r"lacks .* 3 parts.*: big-Q4_K_M-00002-of-00003.gguf; put"):
        open_model(parts[0])


def test_many_missing_parts_are_counted(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, 9)
    for part in parts[1:]:
        part.unlink()
    with pytest.raises(ShardMissing, match="and 5 more; put"):
        open_model(parts[0])


def test_a_part_cut_off_is_named(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, 2)
    parts[1].write_bytes(parts[1].read_bytes()[:30])
    with pytest.raises(GgufError, match=r"00002-of-00002.gguf.*at byte 16"):
        open_model(parts[0])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model-00004-of-00003.gguf", b"", "part 4 of 3"),
        ("renamed.gguf", split_header(0, 3, _FACTS), "one of 3 parts"),
        ("model-00001-of-00001.gguf", split_header(0, 2, _FACTS), "its name says 1"),
    ],
)
def test_names_that_contradict_the_header(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=reason):
        open_model(tmp_path / name)


def test_parts_in_the_wrong_order(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, 2)
    parts[1].write_bytes(parts[0].read_bytes())
    with pytest.raises(ModelFileError, match="says it is part 1"):
        open_model(parts[0])


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html>")
    with pytest.raises(ModelFileError, match="does not exist; check the path"):
        open_model(tmp_path / "nothing.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        open_model(tmp_path)
    with pytest.raises(GgufError, match="empty"):
        open_model(tmp_path / "empty.gguf")
    with pytest.raises(GgufError, match="not a GGUF file"):
        open_model(tmp_path / "page.gguf")
    with pytest.raises(ModelFileError, match="cannot be read"):
        open_model(tmp_path / ("long" * 100))


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        open_model(tmp_path / "pipe.gguf")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="NUL"):
        open_model(tmp_path / "a\0b.gguf")


def test_an_unreadable_file(tmp_path: Path, somebody_else: None) -> None:
    path = tmp_path / "secret.gguf"
    with pytest.raises(ModelFileError, match="cannot be read by"):
        open_model(path)


@pytest.fixture
def somebody_else(tmp_path: Path) -> Iterator[None]:
    """`tmp_path` holds a model that this user may not read; root becomes another user for that."""
    path = tmp_path / "secret.gguf"
    path.write_bytes(header(_FACTS))
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    if user == 0:
        os.seteuid(0)
