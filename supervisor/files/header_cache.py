"""Remember the headers of model files, so that the second look at a file is free.

One small file per model file, named by the hash of its path: a checksum, a line break, MessagePack. It counts only
while the model file has the same size, time of change and inode; whatever is wrong with an entry, it is as if there
were none. Rows of metadata and tensors are in pieces: one of the largest, at once, would keep all threads waiting.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from supervisor.core.gguf import ArraySummary, GgufHeader, GgufValue, TensorInfo
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import inner_folder, keep_newest

_FORMAT = 3  # counts up when the reader finds out more
_ROWS = 2048  # of metadata or tensors in one piece
_MAX_ENTRIES = 512
_MAX_BYTES = 256 << 20  # of all together; one of an ordinary model has some 100 KB


class HeaderCache:
    """The headers remembered in one folder, which is made when there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, path: Path, found: os.stat_result) -> GgufHeader | None:
        """Return the header of the file, if it was kept when the file was as `found`."""
        return self._find(self._entry(os.fsencode(path)), _identity(path, found))

    def keep(self, path: Path, found: os.stat_result, header: GgufHeader) -> None:
        """Remember the header. A folder that cannot be written to only makes the next look slower."""
        self._keep(self._entry(os.fsencode(path)), _identity(path, found), header)

    def recall(self, key: str) -> GgufHeader | None:
        """Return the header kept under a key that its caller chose for one content of one source."""
        return self._find(self._entry(key.encode()), [_FORMAT, key])

    def remember(self, key: str, header: GgufHeader) -> None:
        """Remember the header under such a key."""
        self._keep(self._entry(key.encode()), [_FORMAT, key], header)

    def _find(self, place: Path, identity: list[object]) -> GgufHeader | None:
        try:
            checksum, _, body = place.read_bytes().partition(b"\n")
            if checksum != _checksum(body):
                return None
            entry = msgspec.msgpack.decode(body)
            return _header(entry["header"]) if entry["of"] == identity else None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def _keep(self, place: Path, identity: list[object], header: GgufHeader) -> None:
        with suppress(OSError, OverflowError):  # a place beyond 64 bits, of a file whose size nobody has told
            body = msgspec.msgpack.encode({"of": identity, "header": _plain(header)})
            inner_folder(self._folder)
            atomic_write(place, _checksum(body) + b"\n" + body)
            keep_newest(self._folder.glob("*.header"), _MAX_ENTRIES, _MAX_BYTES)

    def _entry(self, name: bytes) -> Path:
        return self._folder / f"{hashlib.sha256(name).hexdigest()[:32]}.header"


def _identity(path: Path, found: os.stat_result) -> list[object]:
    return [_FORMAT, os.fsencode(path).hex(), found.st_size, found.st_mtime_ns, found.st_ino]


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _plain(header: GgufHeader) -> dict[str, object]:
    return {
        "version": header.version,
        "byte_order": header.byte_order,
        "metadata": _pieces([key, _plain_value(value)] for key, value in header.metadata.items()),
        "tensors": _pieces([t.name, t.shape, t.type, t.offset, t.n_bytes] for t in header.tensors),
        "data_offset": header.data_offset,
        "alignment": header.alignment,
        "file_size": header.file_size,
    }


def _pieces(rows: Iterator[list[object]]) -> list[bytes]:
    return [msgspec.msgpack.encode(some) for some in iter(lambda: list(islice(rows, _ROWS)), [])]


def _rows(pieces: list[bytes]) -> Iterator[Any]:
    for piece in pieces:
        yield from msgspec.msgpack.decode(piece)


def _plain_value(value: GgufValue) -> object:
    return {"type": value.type, "length": value.length} if isinstance(value, ArraySummary) else value


def _header(plain: Mapping[str, Any]) -> GgufHeader:
    metadata = {key: _value(value) for key, value in _rows(plain["metadata"])}
    tensors = tuple(TensorInfo(name, tuple(shape), *rest) for name, shape, *rest in _rows(plain["tensors"]))
    return GgufHeader(**{**plain, "metadata": MappingProxyType(metadata), "tensors": tensors})


def _value(plain: Any) -> GgufValue:
    if isinstance(plain, dict):
        return ArraySummary(**plain)
    return tuple(plain) if isinstance(plain, list) else plain
