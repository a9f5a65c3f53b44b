from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from supervisor.errors import EngineUnusable
from supervisor.llamacpp.digest import engine_digest


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "llama-server").write_bytes(b"program")
    (folder / "libllama.so.0.1").write_bytes(b"library")
    (folder / "libllama.so").symlink_to("libllama.so.0.1")
    (folder / "libcudart.so.13").write_bytes(b"not llama.cpp's")
    return folder / "llama-server"


def digest(binary: Path) -> str:
    return engine_digest(binary, binary.parent.parent / "cache" / "digests.json")


def test_a_copy_under_another_name_is_the_same_engine(binary: Path, tmp_path: Path) -> None:
    shutil.copytree(binary.parent, tmp_path / "copy", symlinks=True)
    (tmp_path / "copy" / "llama-server").rename(tmp_path / "copy" / "llama-server-2")
    assert digest(binary) == digest(tmp_path / "copy" / "llama-server-2")


@pytest.mark.parametrize("name", ["llama-server", "libllama.so.0.1"])
def test_another_program_or_library_is_another_engine(binary: Path, name: str) -> None:
    before = digest(binary)
    (binary.parent / name).write_bytes(b"PROGRAM")
    assert digest(binary) != before


def test_a_new_library_is_another_engine_and_what_is_not_llama_cpps_is_none(binary: Path) -> None:
    before = digest(binary)
    (binary.parent / "libcudart.so.13").write_bytes(b"changed")
    assert digest(binary) == before
    (binary.parent / "libggml-cuda.so").write_bytes(b"new")
    assert digest(binary) != before


def test_libraries_in_the_folder_beside_bin_count(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    binary = tmp_path / "bin" / "llama-server"
    binary.write_bytes(b"program")
    before = digest(binary)
    (tmp_path / "lib" / "libggml-base.so").write_bytes(b"library")
    assert digest(binary) != before


def test_files_are_read_once(binary: Path) -> None:
    before = digest(binary)
    library = binary.parent / "libllama.so.0.1"
    facts = library.stat()
    library.write_bytes(b"LIBRARY")
    os.utime(library, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert digest(binary) == before  # size, time and inode are the same: nothing was read


def test_a_damaged_cache_is_no_cache(binary: Path) -> None:
    before = digest(binary)
    cache = binary.parent.parent / "cache" / "digests.json"
    for content in ("no JSON", "[]", json.dumps({str(binary): 5}), json.dumps({str(binary): {"identity": 1}})):
        cache.write_text(content)
        assert digest(binary) == before


def test_without_a_file_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineUnusable, match="cannot be read"):
        digest(tmp_path / "nothing")
