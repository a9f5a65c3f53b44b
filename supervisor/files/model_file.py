"""Open a model's file: find the parts of a split one, check that all are there and are GGUF."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.gguf import GgufHeader, bounded, combine_shards, read_header, shard_of
from supervisor.errors import GgufError, ModelFileError, ShardMissing
from supervisor.files.header_cache import HeaderCache

_MAX_NAMED = 3


@dataclass(frozen=True)
class ModelFile:
    """A model on disk.

    Attributes:
        path: what the engine opens: the only file, or the first part; absolute.
        parts: all files, in order.
        header: that of the first part, which holds all facts about the model, with the tensors of all.
        size_bytes: of all parts together.
    """

    path: Path
    parts: tuple[Path, ...]
    header: GgufHeader
    size_bytes: int


def open_model(path: Path, *, cache: HeaderCache | None = None, any_byte_order: bool = False) -> ModelFile:
    """Return the model of which `path` is the file, or any part.

    With `any_byte_order` a file for machines of the other kind is opened too: its facts are readable, but no engine
    here can load it. Raises ModelFileError (not there, a folder, unreadable, parts that don't belong together), its
    subclasses GgufError (not a GGUF, damaged) and ShardMissing (a part is not there).
    """
    _check_name(path)
    parts = parts_of(path.absolute())
    sizes: list[int] = []

    def read() -> Iterator[GgufHeader]:
        for number, part in enumerate(parts):
            header, size = _read(part, cache)
            _check_split(part, header, number, len(parts))
            sizes.append(size)
            yield header

    header = _combined(parts[0], bounded(str(parts[0]), read()))
    if header.byte_order != sys.byteorder and not any_byte_order:
        raise GgufError(
            f"{parts[0]} is a {header.byte_order}-endian file, this machine is {sys.byteorder}-endian; "
            "download the other kind, or convert it with llama.cpp's gguf_convert_endian.py",
            offset=4,
        )
    return ModelFile(parts[0], parts, header, sum(sizes))


def _check_name(path: Path) -> None:
    try:
        named = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half of a surrogate pair
        named = False
    if not named:
        raise ModelFileError("A file name cannot contain a NUL character or half of a surrogate pair; check the path")


def parts_of(path: Path) -> tuple[Path, ...]:
    """Return all files of the model of which `path` is one. Raises ModelFileError, ShardMissing."""
    shard = shard_of(path.name)
    if shard is None:
        return (path,)
    count = shard.count
    if not shard.is_possible:
        raise ModelFileError(f"{path}: the name says part {shard.number} of {count}; rename the parts")
    parts = tuple(path.with_name(shard.name_of(number)) for number in range(1, count + 1))
    missing = [part.name for part in parts if not os.path.exists(part)]  # Path.exists may raise instead
    if missing and len(missing) < count:
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise ShardMissing(
            f"{path.parent} lacks some of the {count} parts of the model: {', '.join(missing[:_MAX_NAMED])}{more}; "
            "put them beside the others"
        )
    return parts


def _read(path: Path, cache: HeaderCache | None) -> tuple[GgufHeader, int]:
    """Return header and size in bytes."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise ModelFileError(f"{path} is a folder; name the .gguf file in it")
        if not stat.S_ISREG(found.st_mode):
            raise ModelFileError(f"{path} is not a regular file; name a .gguf file")
        known = cache.find(path, found) if cache else None
        return known or _read_file(path, cache), found.st_size
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist; check the path") from None
    except PermissionError:
        raise ModelFileError(f"{path} cannot be read by this user; change its permissions") from None
    except GgufError as error:
        told = f"{path} is not a usable GGUF file; copy or download it again: {error.reason}"
        raise GgufError(told, offset=error.offset) from error
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_file(path: Path, cache: HeaderCache | None) -> GgufHeader:
    with path.open("rb") as stream:
        found = os.fstat(stream.fileno())
        header = read_header(stream, found.st_size)
    if cache:
        cache.keep(path, found, header)
    return header


def _combined(first: Path, headers: list[GgufHeader]) -> GgufHeader:
    try:
        return combine_shards(headers)
    except GgufError as error:
        raise GgufError(f"{first}: {error.reason}; download the parts anew, all from one place") from error


def _check_split(path: Path, header: GgufHeader, number: int, count: int) -> None:
    """Refuse a part under a wrong name, which would make the engine fail later, with less to say."""
    split_count = header.split_count or 1
    if split_count != count:
        raise ModelFileError(
            f"{path} says it is one of {split_count} parts, its name says {count}; "
            f"give the parts their names back: NAME-00001-of-{split_count:05d}.gguf"
        )
    if count > 1 and header.split_no != number:
        raise ModelFileError(f"{path} says it is part {(header.split_no or 0) + 1}; give the parts their names back")
