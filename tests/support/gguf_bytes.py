"""Writes GGUF headers for tests, byte by byte and independent of the reader, damaged ones too."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: object) -> bytes:
    """The bytes of one value of GGUF type `kind`."""
    return text(str(value)) if kind == STRING else struct.pack("<" + _FORMS[kind], value)


def pair(key: str | bytes, kind: int, value: object) -> bytes:
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def array(key: str, kind: int, items: Sequence[object]) -> bytes:
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(items))
    return head + b"".join(scalar(kind, item) for item in items)


def header(*pairs: bytes, version: int = 3, tensors: int = 0, count: int | None = None) -> bytes:
    """A whole header; `count` lies about the number of pairs."""
    return struct.pack("<4sIqq", b"GGUF", version, tensors, len(pairs) if count is None else count) + b"".join(pairs)


def split_header(number: int, count: int, *pairs: bytes) -> bytes:
    """The header of part `number` (from 0) of `count`."""
    return header(pair("split.no", 2, number), pair("split.count", 2, count), *pairs)
