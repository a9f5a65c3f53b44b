"""Which file beside a model is its projector."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from supervisor.files.model_file import ModelFile, open_model
from supervisor.files.projector import projector_beside


def model_in(folder: Path, name: str = "tiny-vl-Q4_K_M.gguf", width: int = 64) -> ModelFile:
    writer = gguf.GGUFWriter(folder / name, "llama")
    writer.add_embedding_length(width)
    return finished(writer, folder / name)


def projector_in(folder: Path, name: str, width: int | None) -> Path:
    writer = gguf.GGUFWriter(folder / name, "clip")
    if width is not None:
        writer.add_uint32("clip.vision.projection_dim", width)
    return finished(writer, folder / name).path


def finished(writer: gguf.GGUFWriter, path: Path) -> ModelFile:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return open_model(path)


@pytest.mark.parametrize("name", ["mmproj-tiny-vl-f16.gguf", "tiny-vl-mmproj-f16.gguf", "MMPROJ.gguf"])
@pytest.mark.parametrize("width", [64, None])
def test_it_is_found_by_name_and_width(tmp_path: Path, name: str, width: int | None) -> None:
    model = model_in(tmp_path)
    assert projector_beside(model) is None
    expected = projector_in(tmp_path, name, width)
    assert projector_beside(model) == expected


def test_one_of_another_width_or_kind_is_not_its(tmp_path: Path) -> None:
    projector_in(tmp_path, "mmproj-other.gguf", 128)
    model_in(tmp_path, "mmproj-is-only-a-name.gguf")
    (tmp_path / "mmproj-broken.gguf").write_bytes(b"GGUF")
    assert projector_beside(model_in(tmp_path)) is None


def test_of_several_the_one_named_most_alike(tmp_path: Path) -> None:
    for name in ("mmproj-a.gguf", "mmproj-tiny-vl.gguf", "mmproj-zebra.gguf"):
        projector_in(tmp_path, name, 64)
    found = projector_beside(model_in(tmp_path))
    assert found is not None
    assert found.name == "mmproj-tiny-vl.gguf"
