"""Read the header of a GGUF file: its metadata and the list of its tensors.

The layout is llama.cpp's (`ggml/include/gguf.h`); numbers are little-endian in nearly every file, big-endian in some:

    "GGUF", u32 version, i64 tensors, i64 pairs
    pair      string key, u32 type, value
    string    u64 length, bytes
    array     u32 item type, u64 length, items
    tensor    string name, u32 dimensions, i64 each, u32 type, u64 offset of its data

The file may be damaged, cut off or hostile: every count and length is checked against what is left of the file and
against a limit before anything is read, and what is wrong is a GgufError with its place. What is long is walked over
and summarised, not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType
from typing import BinaryIO, Final

from supervisor.core.gguf.cursor import ARRAY, STRING, TYPE_NAMES, U32, Cursor
from supervisor.core.gguf.ggml import TENSOR_TYPES
from supervisor.core.gguf.header import ArraySummary, GgufHeader, GgufScalar, GgufValue, TensorInfo
from supervisor.errors import GgufError

KEPT_ITEMS: Final = 4096
"""Arrays of up to this many items are kept; longer ones become an `ArraySummary`."""

VOCABULARY_KEYS: Final = frozenset(
    f"tokenizer.ggml.{part}" for part in ("tokens", "merges", "scores", "token_type", "precompiled_charsmap")
)
"""Arrays that are never kept, however short: only their length is a fact about the model."""

_VERSIONS = frozenset({2, 3})
_MAX_TENSORS = 1 << 16
_MAX_PAIRS = 1 << 16
_MAX_KEY = (1 << 16) - 1
_MAX_TEXT = 1 << 20  # bytes of one text; a longer one is summarised
_SMALLEST_PAIR = 14  # key of one byte, one byte of value
_SMALLEST_TENSOR = 24
_MAX_NAME = 63
_MAX_DIMENSIONS = 4
_ALIGNMENT_KEY = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_LARGEST = (1 << 63) - 1


def read_header(
    stream: BinaryIO, size: int | None = None, expect: Callable[[int], None] = lambda _: None
) -> GgufHeader:
    """Return the header that begins at the stream's position.

    Only reads forward (`read`, and `seek` where much is skipped), at most a block further than the header, and leaves
    the stream anywhere. `size` is the file's; without it, nobody checks that the tensors' data is there. `expect` is
    told the place up to which reading is likely to go on; it may be too near or too far.
    Raises GgufError for whatever is wrong with the bytes; what the stream itself raises passes through.
    """
    cursor = Cursor(stream, size, expect)
    version = _read_version(cursor)
    tensor_count = _read_count(cursor, "tensors", _MAX_TENSORS, _SMALLEST_TENSOR)
    pair_count = _read_count(cursor, "metadata pairs", _MAX_PAIRS, _SMALLEST_PAIR)
    metadata, alignment = _read_metadata(cursor, pair_count)
    tensors = _read_tensors(cursor, tensor_count)
    cursor.end()
    data_offset = _padded(cursor.offset, alignment) if tensors else cursor.offset
    room = None if size is None else size - data_offset
    if room is not None and room < 0:
        raise cursor.error(f"the tensors' data should begin at byte {data_offset} of {size}: cut off or damaged")
    tensors = _placed(cursor, tensors, alignment, room)
    return GgufHeader(version, cursor.byte_order, MappingProxyType(metadata), tensors, data_offset, alignment, size)


def _read_version(cursor: Cursor) -> int:
    if cursor.left == 0:
        raise cursor.error("the file is empty")
    magic = cursor.take(4, "magic number")
    if magic != b"GGUF":
        # which they are is not said: whoever may name a path must not read other people's files by it
        raise GgufError("not a GGUF file: its first four bytes are not 'GGUF'", offset=0)
    version = cursor.take(4, "version")
    for order in ("little", "big"):
        if int.from_bytes(version, order) in _VERSIONS:
            cursor.set_byte_order(order)
            return int.from_bytes(version, order)
    number = min(int.from_bytes(version, "little"), int.from_bytes(version, "big"))
    raise GgufError(f"GGUF version {number}; versions 2 and 3 are understood", offset=4)


def _read_count(cursor: Cursor, what: str, limit: int, smallest: int) -> int:
    start, count = cursor.offset, cursor.i64(f"number of {what}")
    if not 0 <= count <= limit:
        raise GgufError(f"impossible number of {what}: {count} (limit {limit})", offset=start)
    if count * smallest > cursor.left:
        raise GgufError(f"{count} {what} don't fit into the {cursor.left} bytes left: cut off or damaged", offset=start)
    return count


def _read_metadata(cursor: Cursor, count: int) -> tuple[dict[str, GgufValue], int]:
    """Return all pairs, and the alignment that they set."""
    metadata: dict[str, GgufValue] = {}
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(count):
        start, key = cursor.offset, _read_key(cursor)
        if key in metadata:
            raise GgufError(f"the key {key!r} occurs twice", offset=start)
        kind = cursor.u32(f"type of {key}")
        if kind not in TYPE_NAMES:
            raise GgufError(f"{key}: unknown type {kind}", offset=cursor.offset - 4)
        metadata[key] = _read_value(cursor, key, kind)
        if key == _ALIGNMENT_KEY:
            alignment = _checked_alignment(kind, metadata[key], start)
    return metadata, alignment


def _read_key(cursor: Cursor) -> str:
    start, length = cursor.offset, cursor.u64("length of a key")
    if not 0 < length <= _MAX_KEY:
        raise GgufError(f"impossible length of a key: {length}", offset=start)
    if not cursor.afford_text(length):
        raise GgufError("the keys are longer than a header may have", offset=start)
    return cursor.utf8(length, "key")


def _read_value(cursor: Cursor, key: str, kind: int) -> GgufValue:
    if kind == STRING:
        return _read_text(cursor, key)
    if kind == ARRAY:
        return _read_array(cursor, key)
    return cursor.scalar(kind, key)


def _read_text(cursor: Cursor, key: str) -> str | ArraySummary:
    length = cursor.u64(f"length of {key}")
    if length <= _MAX_TEXT and cursor.afford_text(length):
        return cursor.take(length, key).decode(errors="replace")
    cursor.skip(length, key)
    return ArraySummary("byte", length)


def _read_array(cursor: Cursor, key: str) -> tuple[GgufScalar, ...] | ArraySummary:
    start, kind = cursor.offset, cursor.u32(f"item type of {key}")
    if kind == ARRAY or kind not in TYPE_NAMES:
        what = "an array of arrays" if kind == ARRAY else f"unknown item type {kind}"
        raise GgufError(f"{key}: {what}", offset=start)
    start, length = cursor.offset, cursor.u64(f"length of {key}")
    if length * cursor.item_size(kind) > cursor.left:
        raise GgufError(f"{key}: {length} items don't fit into the {cursor.left} bytes left", offset=start)
    if length <= KEPT_ITEMS and key not in VOCABULARY_KEYS and cursor.afford_items(length):
        return _read_texts(cursor, key, length) if kind == STRING else cursor.scalars(kind, length, key)
    if kind == STRING:
        cursor.skip_strings(length, key)
    else:
        cursor.skip(length * cursor.item_size(kind), key)
    return ArraySummary(TYPE_NAMES[kind], length)


def _read_texts(cursor: Cursor, key: str, count: int) -> tuple[str, ...] | ArraySummary:
    texts = []
    for position in range(count):
        text = _read_text(cursor, key)
        if isinstance(text, ArraySummary):
            cursor.skip_strings(count - position - 1, key)
            return ArraySummary("string", count)
        texts.append(text)
    return tuple(texts)


def _checked_alignment(kind: int, value: GgufValue, offset: int) -> int:
    if kind != U32 or not isinstance(value, int):
        raise GgufError(f"{_ALIGNMENT_KEY} is of type {TYPE_NAMES[kind]}, not u32", offset=offset)
    if value <= 0 or value & (value - 1):
        raise GgufError(f"{_ALIGNMENT_KEY} is {value}, not a power of two", offset=offset)
    return value


def _read_tensors(cursor: Cursor, count: int) -> tuple[TensorInfo, ...]:
    tensors: dict[str, TensorInfo] = {}
    for _ in range(count):
        start, tensor = cursor.offset, _read_tensor(cursor)
        if tensor.name in tensors:
            raise GgufError(f"the tensor {tensor.name!r} occurs twice", offset=start)
        tensors[tensor.name] = tensor
    return tuple(tensors.values())


def _read_tensor(cursor: Cursor) -> TensorInfo:
    start, length = cursor.offset, cursor.u64("length of a tensor's name")
    if length > _MAX_NAME:
        raise GgufError(f"a tensor's name of {length} bytes; at most {_MAX_NAME} are allowed", offset=start)
    name = cursor.utf8(length, "tensor's name")
    start, dimensions = cursor.offset, cursor.u32(f"dimensions of {name}")
    if dimensions > _MAX_DIMENSIONS:
        raise GgufError(f"{name}: {dimensions} dimensions; at most {_MAX_DIMENSIONS} are allowed", offset=start)
    shape = tuple(cursor.i64(f"shape of {name}") for _ in range(dimensions))
    if any(extent < 0 for extent in shape) or math.prod(extent or 1 for extent in shape) > _LARGEST:
        raise GgufError(f"{name}: impossible shape {list(shape)}", offset=start)
    start, number = cursor.offset, cursor.u32(f"type of {name}")
    known = TENSOR_TYPES.get(number)
    if known and (shape[0] if shape else 1) % known.block:
        raise GgufError(f"{name}: rows of {list(shape)} are not whole blocks of {known.name}", offset=start)
    return TensorInfo(name, shape, number, cursor.u64(f"offset of {name}"))


def _placed(
    cursor: Cursor, tensors: tuple[TensorInfo, ...], alignment: int, room: int | None
) -> tuple[TensorInfo, ...]:
    """Return the tensors. One of an unknown type gets the room up to the next; `room` is that of all data.

    The data of each begins where that of the one before ends, rounded up: llama.cpp loads nothing else.
    """
    placed = []
    expected = 0
    for tensor, following in zip_longest(tensors, tensors[1:]):
        if tensor.offset != expected:
            raise cursor.error(f"{tensor.name}: its data begins at {tensor.offset}, not where it has to: {expected}")
        end = _end_of_data(tensor, following, room)
        if end is not None and room is not None and end > room:
            raise cursor.error(f"{tensor.name}: its data ends {end - room} bytes after the file: cut off or damaged")
        if end is not None and tensor.n_bytes is None:
            tensor = replace(tensor, n_bytes=max(0, end - expected))
        placed.append(tensor)
        expected = _padded(max(end or 0, expected), alignment)
    return tuple(placed)


def _end_of_data(tensor: TensorInfo, following: TensorInfo | None, room: int | None) -> int | None:
    if tensor.n_bytes is not None:
        return tensor.offset + tensor.n_bytes
    return following.offset if following else room


def _padded(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment
