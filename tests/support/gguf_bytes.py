"""Writes GGUF headers for tests, byte by byte and independent of the reader, damaged ones too.

`order` is struct's sign for the byte order: "<" little, ">" big.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def text(value: str | bytes, order: str = "<") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw)) + raw


def scalar(kind: int, value: object, order: str = "<") -> bytes:
    """The bytes of one value of GGUF type `kind`."""
    return text(str(value), order) if kind == STRING else struct.pack(order + _FORMS[kind], value)


def pair(key: str | bytes, kind: int, value: object, order: str = "<") -> bytes:
    return text(key, order) + struct.pack(order + "I", kind) + scalar(kind, value, order)


def array(key: str, kind: int, items: Sequence[object], order: str = "<") -> bytes:
    head = text(key, order) + struct.pack(order + "IIQ", ARRAY, kind, len(items))
    return head + b"".join(scalar(kind, item, order) for item in items)


def tensor(name: str | bytes, shape: Sequence[int], kind: int, offset: int, order: str = "<") -> bytes:
    """What a header says about one tensor."""
    dimensions = struct.pack(f"{order}I{len(shape)}q", len(shape), *shape)
    return text(name, order) + dimensions + struct.pack(order + "IQ", kind, offset)


def header(*pairs: bytes, version: int = 3, tensors: int = 0, count: int | None = None, order: str = "<") -> bytes:
    """All but the tensors, of which it announces `tensors`; `count` lies about the number of pairs."""
    announced = len(pairs) if count is None else count
    return struct.pack(order + "4sIqq", b"GGUF", version, tensors, announced) + b"".join(pairs)


def model(pairs: Sequence[bytes], tensors: Sequence[bytes], data: int, order: str = "<") -> bytes:
    """A whole file with `data` bytes of data, aligned to 32."""
    start = header(*pairs, tensors=len(tensors), order=order) + b"".join(tensors)
    return start + bytes(-len(start) % 32) + bytes(data)


def split_header(number: int, count: int, *pairs: bytes) -> bytes:
    """The header of part `number` (from 0) of `count`."""
    return header(pair("split.no", 2, number), pair("split.count", 2, count), *pairs)
