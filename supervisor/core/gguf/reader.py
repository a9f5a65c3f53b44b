"""The header of a GGUF file: its metadata and what it says about its tensors.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias

from supervisor.core.gguf.cursor import ARRAY, STRING, TYPE_NAMES, U32, Cursor
from supervisor.core.gguf.ggml import TENSOR_TYPES, type_name
from supervisor.errors import GgufError, ShardMissing

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
_MAX_SHARDS = 99_999
_MAX_NAMED = 3  # missing parts
_ALIGNMENT_KEY = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """A value that was not kept: the type of its items (`u32`, `string`, …; `byte` for a text) and how many."""

    type: str
    length: int


GgufScalar: TypeAlias = bool | int | float | str
GgufValue: TypeAlias = GgufScalar | tuple[GgufScalar, ...] | ArraySummary


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor.

    Attributes:
        shape: elements per dimension, the fastest first (ggml's order).
        type: its number in `ggml.TENSOR_TYPES`, where it may be missing.
        offset: where its data begins, from the start of the data section.
        n_bytes: of the data; of an unknown type the room it has in the file, None where not even that is known.
    """

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    n_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.type in TENSOR_TYPES:
            object.__setattr__(self, "n_bytes", TENSOR_TYPES[self.type].bytes_for(self.n_elements))

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def type_name(self) -> str:
        return type_name(self.type)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a header says. Properties are None where the key is absent or of an unusable type.

    Attributes:
        byte_order: "little" or "big"; llama.cpp loads only the machine's own.
        metadata: in file order.
        tensors: in file order.
        data_offset: where the data section begins, in bytes from the start of the file.
        file_size: None where it was not known.
    """

    version: int
    byte_order: str
    metadata: Mapping[str, GgufValue]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    alignment: int
    file_size: int | None

    @property
    def tensor_count(self) -> int:
        return len(self.tensors)

    @property
    def architecture(self) -> str | None:
        return self.text("general.architecture")

    @property
    def name(self) -> str | None:
        return self.text("general.name")

    @property
    def n_ctx_train(self) -> int | None:
        """The context the model was trained with, in tokens."""
        return self.integer(f"{self.architecture}.context_length")

    @property
    def pooling_type(self) -> int | None:
        """How token embeddings become one (llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last, 4 rank)."""
        return self.integer(f"{self.architecture}.pooling_type")

    @property
    def chat_template(self) -> str | None:
        return self.text("tokenizer.chat_template")

    @property
    def split_no(self) -> int | None:
        """Which part of a split model this is, from 0."""
        return self.integer("split.no")

    @property
    def split_count(self) -> int | None:
        return self.integer("split.count")

    @property
    def split_tensors_count(self) -> int | None:
        """How many tensors all parts have together."""
        return self.integer("split.tensors.count")

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_header(
    stream: BinaryIO, size: int | None = None, expect: Callable[[int], None] = lambda _: None
) -> GgufHeader:
    """The header that begins at the stream's position.

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
    """All pairs, and the alignment that they ask for."""
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
    """The tensors, each of an unknown type with the room that it has; `room` is that of all data.

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


def combine_shards(headers: Sequence[GgufHeader]) -> GgufHeader:
    """The parts of a split model, in order, as one header: the first one's keys, everybody's tensors.

    Raises ShardMissing (a part is not among them) and GgufError (one doesn't belong here), which name the part.
    Offsets of tensors stay those in their own part.
    """
    first = headers[0]
    _check_complete(headers, first.split_count or 1)
    tensors: dict[str, TensorInfo] = {}
    for position, header in enumerate(headers):
        _check_shard(header, first, position)
        for tensor in header.tensors:
            if tensors.setdefault(tensor.name, tensor) is not tensor:
                raise GgufError(f"part {position + 1}: an earlier part has the tensor {tensor.name!r} too")
    if len(headers) > 1 and first.split_tensors_count not in {None, len(tensors)}:
        raise GgufError(f"the parts hold {len(tensors)} tensors, {first.split_tensors_count} are announced")
    sizes = [header.file_size for header in headers if header.file_size is not None]
    size = sum(sizes) if len(sizes) == len(headers) else None
    return replace(first, tensors=tuple(tensors.values()), file_size=size)


def _check_complete(headers: Sequence[GgufHeader], count: int) -> None:
    if not 0 < count <= _MAX_SHARDS:
        raise GgufError(f"impossible number of parts: {count}")
    missing = sorted(set(range(count)) - {header.split_no or 0 for header in headers})
    if missing:
        named = ", ".join(str(number + 1) for number in missing[:_MAX_NAMED])
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise ShardMissing(f"the model has {count} parts, of which part {named}{more} is missing")


def _check_shard(header: GgufHeader, first: GgufHeader, position: int) -> None:
    if (header.split_no or 0) != position:
        raise GgufError(f"part {(header.split_no or 0) + 1} stands where part {position + 1} belongs")
    facts = {
        "number of parts": (header.split_count, first.split_count),
        "number of tensors in all parts": (header.split_tensors_count, first.split_tensors_count),
        "byte order": (header.byte_order, first.byte_order),
        "architecture": (header.architecture or first.architecture, first.architecture),
    }
    for what, (here, there) in facts.items():
        if here != there:
            raise GgufError(f"part {position + 1} is of another model: its {what} is {here}, the first part's {there}")
