"""Reads the header of a GGUF file: its metadata, without tokens, merges and tensors.

The layout is llama.cpp's (`ggml/include/gguf.h`), little-endian:

    "GGUF", u32 version, i64 tensors, i64 pairs
    pair      string key, u32 type, value
    string    u64 length, bytes
    array     u32 item type, u64 length, items

The file may be damaged, cut off or hostile: every length is checked against what is left of the file and against a
limit before anything is read, and what is wrong is a GgufError with its place. Long arrays are skipped, not kept.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import BinaryIO, TypeAlias

from supervisor.errors import GgufError

KEPT_ITEMS = 64
"""Arrays up to this length are kept; longer ones become an `ArraySummary`."""

_MAX_TENSORS = 1 << 20
_MAX_PAIRS = 1 << 16
_MAX_KEY = 1 << 16
_MAX_TEXT = 16 << 20  # bytes of all strings that are kept
_MAX_STRINGS = 16 << 20  # strings that are walked over
_BLOCK = 1 << 18
_SMALLEST_PAIR = 14  # key of one byte, one byte of value
_FROM_END = 2  # whence of seek()

_SCALARS = {
    0: ("u8", "<B"),
    1: ("i8", "<b"),
    2: ("u16", "<H"),
    3: ("i16", "<h"),
    4: ("u32", "<I"),
    5: ("i32", "<i"),
    6: ("f32", "<f"),
    7: ("bool", "<?"),
    10: ("u64", "<Q"),
    11: ("i64", "<q"),
    12: ("f64", "<d"),
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class ArraySummary:
    """An array that was not kept: the type of its items (`u32`, `string`, …) and how many there are."""

    type: str
    length: int


GgufScalar: TypeAlias = bool | int | float | str
GgufValue: TypeAlias = GgufScalar | tuple[GgufScalar, ...] | ArraySummary


@dataclass(frozen=True)
class GgufHeader:
    """What a header says. Properties are None where the key is absent or of an unusable type."""

    version: int
    tensor_count: int
    metadata: Mapping[str, GgufValue]

    @property
    def architecture(self) -> str | None:
        return self._text("general.architecture")

    @property
    def name(self) -> str | None:
        return self._text("general.name")

    @property
    def n_ctx_train(self) -> int | None:
        """The context the model was trained with, in tokens."""
        return self._integer(f"{self.architecture}.context_length")

    @property
    def pooling_type(self) -> int | None:
        """How token embeddings become one (llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last, 4 rank)."""
        return self._integer(f"{self.architecture}.pooling_type")

    @property
    def chat_template(self) -> str | None:
        return self._text("tokenizer.chat_template")

    @property
    def split_no(self) -> int | None:
        """Which part of a split model this is, from 0."""
        return self._integer("split.no")

    @property
    def split_count(self) -> int | None:
        return self._integer("split.count")

    def _text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def _integer(self, key: str) -> int | None:
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_header(stream: BinaryIO) -> GgufHeader:
    """The header at the start of a seekable stream; leaves the stream anywhere. Raises GgufError only."""
    cursor = _Cursor(stream)
    version = _read_version(cursor)
    tensor_count = _read_count(cursor, "tensors", _MAX_TENSORS)
    pairs = _read_count(cursor, "metadata pairs", _MAX_PAIRS)
    if pairs * _SMALLEST_PAIR > cursor.left:
        raise cursor.error(f"{pairs} metadata pairs don't fit into the {cursor.left} bytes left: the file is cut off")
    metadata: dict[str, GgufValue] = {}
    for _ in range(pairs):
        key = _read_key(cursor)
        if key in metadata:
            raise cursor.error(f"the key {key!r} occurs twice")
        metadata[key] = _read_value(cursor, key)
    return GgufHeader(version, tensor_count, MappingProxyType(metadata))


class _Cursor:
    """Reads forward in blocks; knows how much is left."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = stream.seek(0, _FROM_END)
        self.offset = 0
        self.text_left = _MAX_TEXT
        self.strings_left = _MAX_STRINGS
        self._block = b""
        self._block_start = 0

    @property
    def left(self) -> int:
        return self.size - self.offset

    def error(self, reason: str) -> GgufError:
        return GgufError(reason, offset=self.offset)

    def take(self, length: int, what: str) -> bytes:
        """The next `length` bytes."""
        start = self._locate(length, what)
        self.offset += length
        return self._block[start : start + length]

    def number(self, form: str, what: str) -> int | float | bool:
        """The next number, `form` being its struct format."""
        size = struct.calcsize(form)
        start = self._locate(size, what)
        self.offset += size
        value: int | float | bool = struct.unpack_from(form, self._block, start)[0]
        return value

    def count(self, form: str, what: str) -> int:
        """The next number, known to be an integer."""
        return int(self.number(form, what))

    def skip(self, length: int, what: str) -> None:
        if length > self.left:
            raise self.error(f"{what}: {length} bytes announced, {self.left} left")
        self.offset += length

    def skip_strings(self, count: int, what: str) -> None:
        """Walk over `count` strings; the one loop here that has to be fast."""
        unpack = struct.Struct("<Q").unpack_from
        block, at = b"", 0
        for _ in range(count):
            if at + 8 > len(block):
                self.offset += at
                start = self._locate(8, what)
                block, at = self._block[start:], 0
            at += 8 + unpack(block, at)[0]
            if self.offset + at > self.size:
                self.offset += min(at, self.left)
                raise self.error(f"{what}: a string is longer than the rest of the file")
        self.offset += at

    def _locate(self, length: int, what: str) -> int:
        """Where in the block the next `length` bytes begin; reads a new block if they are not all in it."""
        if length > self.left:
            raise self.error(f"{what}: {length} bytes needed, {self.left} left: the file is cut off or damaged")
        start = self.offset - self._block_start
        if start + length > len(self._block):
            self._stream.seek(self.offset)
            self._block = self._stream.read(max(length, min(_BLOCK, self.left)))
            self._block_start, start = self.offset, 0
            if len(self._block) < length:
                raise self.error(f"{what}: the file ended early; did it change while it was read?")
        return start


def _read_version(cursor: _Cursor) -> int:
    if cursor.size == 0:
        raise cursor.error("the file is empty")
    magic = cursor.take(4, "magic number")
    if magic != b"GGUF":
        raise GgufError(f"not a GGUF file: it begins with {magic!r}, not with b'GGUF'", offset=0)
    version = cursor.count("<I", "version")
    if version and version & 0xFFFF == 0:
        raise GgufError("a big-endian GGUF file; convert it for this machine", offset=4)
    if version not in {2, 3}:
        raise GgufError(f"GGUF version {version}; versions 2 and 3 are understood", offset=4)
    return version


def _read_count(cursor: _Cursor, what: str, limit: int) -> int:
    count = cursor.count("<q", f"number of {what}")
    if not 0 <= count <= limit:
        raise cursor.error(f"impossible number of {what}: {count} (limit {limit})")
    return count


def _read_key(cursor: _Cursor) -> str:
    length = cursor.count("<Q", "length of a key")
    if not 0 < length <= _MAX_KEY:
        raise cursor.error(f"impossible length of a key: {length}")
    start = cursor.offset
    try:
        return cursor.take(length, "key").decode()
    except UnicodeDecodeError:
        raise GgufError("a key is not UTF-8", offset=start) from None


def _read_value(cursor: _Cursor, key: str) -> GgufValue:
    kind = cursor.count("<I", f"type of {key}")
    return _read_array(cursor, key) if kind == _ARRAY else _read_scalar(cursor, kind, key)


def _read_scalar(cursor: _Cursor, kind: int, key: str) -> GgufScalar:
    if kind == _STRING:
        return _read_text(cursor, key)
    if kind not in _SCALARS:
        raise cursor.error(f"{key}: unknown type {kind}")
    return cursor.number(_SCALARS[kind][1], key)


def _read_text(cursor: _Cursor, key: str) -> str:
    length = cursor.count("<Q", f"length of {key}")
    if length > cursor.text_left:
        raise cursor.error(f"{key}: a text of {length} bytes is too long for a header")
    cursor.text_left -= length
    return cursor.take(length, key).decode(errors="replace")


def _read_array(cursor: _Cursor, key: str) -> tuple[GgufScalar, ...] | ArraySummary:
    kind = cursor.count("<I", f"item type of {key}")
    if kind != _STRING and kind not in _SCALARS:
        raise cursor.error(f"{key}: unknown item type {kind}")
    length = cursor.count("<Q", f"length of {key}")
    item_size = 8 if kind == _STRING else struct.calcsize(_SCALARS[kind][1])
    if length * item_size > cursor.left:
        raise cursor.error(f"{key}: {length} items don't fit into the {cursor.left} bytes left")
    if length <= KEPT_ITEMS:
        return tuple(_read_scalar(cursor, kind, key) for _ in range(length))
    if kind != _STRING:
        cursor.skip(length * item_size, key)
        return ArraySummary(_SCALARS[kind][0], length)
    if length > cursor.strings_left:
        raise cursor.error(f"{key}: {length} strings are too many for a header")
    cursor.strings_left -= length
    cursor.skip_strings(length, key)
    return ArraySummary("string", length)
