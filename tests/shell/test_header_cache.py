"""The second look at a model file."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from supervisor.core.gguf import GgufValue
from supervisor.errors import GgufError
from supervisor.files.header_cache import HeaderCache
from supervisor.files.model_file import open_model
from tests.support import headers
from tests.support.gguf_bytes import STRING, array, header, model, pair, tensor

_CONTENT = model(
    [
        pair("general.architecture", STRING, "llama"),
        pair("z.first", 12, float("inf")),
        pair("a.whole", 12, 1.0),
        pair("a.flag", 7, True),
        pair("a.large", 10, 2**64 - 1),
        array("a.few", 5, [1, -2]),
        array("tokenizer.ggml.tokens", STRING, ["ä", "b"]),
    ],
    [tensor("a", [2, 3], 0, 0), tensor("ü", [7], 99, 32)],
    64,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(_CONTENT)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> HeaderCache:
    return HeaderCache(tmp_path / "not" / "yet")


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "not" / "yet").iterdir())


def test_what_is_remembered_is_what_was_read(path: Path, cache: HeaderCache) -> None:
    assert cache.find(path, path.stat()) is None
    first = open_model(path, cache=cache).header
    remembered = cache.find(path, path.stat())
    assert remembered is not None
    assert remembered == first == open_model(path).header
    assert list(remembered.metadata) == list(first.metadata)
    assert [type(value) for value in remembered.metadata.values()] == [type(v) for v in first.metadata.values()]


def test_the_second_look_does_not_read_the_file(path: Path, cache: HeaderCache) -> None:
    first = open_model(path, cache=cache)
    found = path.stat()
    path.write_bytes(bytes(len(_CONTENT)))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert open_model(path, cache=cache) == first


def test_a_changed_file_is_read_again(path: Path, cache: HeaderCache, tmp_path: Path) -> None:
    open_model(path, cache=cache)
    found = path.stat()
    path.write_bytes(header(pair("general.architecture", STRING, "gemma")))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert open_model(path, cache=cache).header.architecture == "gemma"  # another size
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert cache.find(path, path.stat()) is None
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
    open_model(path, cache=cache)
    copy.rename(path)
    assert cache.find(path, path.stat()) is None  # another inode


def test_a_damaged_entry_is_ignored_and_replaced(path: Path, cache: HeaderCache, tmp_path: Path) -> None:
    first = open_model(path, cache=cache)
    [entry] = entries(tmp_path)
    whole = entry.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        for content in (bytes(damaged), whole[:place]):
            entry.write_bytes(content)
            assert cache.find(path, path.stat()) is None
    assert open_model(path, cache=cache) == first
    assert entry.read_bytes() == whole


def test_nothing_is_remembered_of_a_damaged_file(path: Path, cache: HeaderCache, tmp_path: Path) -> None:
    path.write_bytes(_CONTENT[:100])
    with pytest.raises(GgufError):
        open_model(path, cache=cache)
    assert not (tmp_path / "not").exists()


def test_a_folder_that_cannot_be_made_only_costs_time(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert open_model(path, cache=HeaderCache(tmp_path / "file" / "cache")).header.architecture == "llama"


def test_old_entries_are_forgotten(path: Path, cache: HeaderCache, tmp_path: Path) -> None:
    found, known = path.stat(), open_model(path).header
    for number in range(514):
        cache.keep(tmp_path / f"{number}.gguf", found, known)
        if number == 0:
            os.utime(entries(tmp_path)[0], ns=(0, 0))
    assert len(entries(tmp_path)) == 512
    assert cache.find(tmp_path / "0.gguf", found) is None
    assert cache.find(tmp_path / "513.gguf", found) == known


def test_large_entries_are_forgotten_before_there_are_many(path: Path, cache: HeaderCache, tmp_path: Path) -> None:
    """Whoever makes a model makes its header, of megabytes if need be."""
    found, known = path.stat(), open_model(path, cache=cache).header
    folder = entries(tmp_path)[0].parent
    for number in range(300):
        with (folder / f"{number}.header").open("wb") as stream:
            stream.truncate(1 << 20)  # which takes no room on the disk
    cache.keep(tmp_path / "newest.gguf", found, known)
    assert sum(entry.stat().st_size for entry in entries(tmp_path)) <= 256 << 20
    assert cache.find(tmp_path / "newest.gguf", found) == known


def test_no_header_goes_through_pythons_json(path: Path, cache: HeaderCache) -> None:
    """It works a large one off in one step, during which all other threads of the process wait."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_back is not None:
            called.add((frame.f_back.f_globals["__name__"], frame.f_globals["__name__"]))

    sys.setprofile(note)
    try:
        open_model(path, cache=cache)
        open_model(path, cache=cache)
    finally:
        sys.setprofile(None)
    own = HeaderCache.__module__
    assert (own, "supervisor.system.atomic") in called
    assert (own, "json") not in called


def test_a_header_with_places_beyond_64_bits_is_not_kept(path: Path, cache: HeaderCache) -> None:
    read = open_model(path).header
    cache.remember("beyond", replace(read, data_offset=1 << 64))
    assert cache.recall("beyond") is None
    cache.remember("beyond", read)
    assert cache.recall("beyond") == read


def test_many_rows_are_kept_in_pieces(cache: HeaderCache) -> None:
    """One of all would keep all other threads of the process waiting."""
    keys: dict[str, GgufValue] = {f"llama.key_{number}": (number, 2) for number in range(5000)}
    many = headers.header(keys, {f"blk.{number}.w": (32, 2) for number in range(5000)})
    pieces: list[int] = []

    def note(_: FrameType, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__name__", "") == "msgpack_decode":
            pieces.append(1)

    cache.remember("many", many)
    sys.setprofile(note)
    try:
        found = cache.recall("many")
    finally:
        sys.setprofile(None)
    assert found == many
    assert len(pieces) == 7
