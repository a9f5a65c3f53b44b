"""Write the bytes of a GGUF file: version 3, little-endian, the layout of ggml's `docs/gguf.md`.

A value of the header is passed as its bytes, the number of its type before its content: `u32(1)`, `text("llama")`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

F32, F16 = 0, 1
"""Types of tensors, by ggml's numbers."""

ALIGNMENT = 32
"""Bytes to a multiple of which the head and every tensor's data are padded with zeros."""

_MAGIC, _VERSION = b"GGUF", 3
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor and its content.

    Attributes:
        shape: elements per dimension, the innermost first.
        type: `F32` or `F16`.
        data: the elements, little-endian, the innermost dimension contiguous.
    """

    name: str
    shape: tuple[int, ...]
    type: int
    data: bytes


def whole_file(values: Mapping[str, bytes], tensors: Sequence[Tensor]) -> bytes:
    """Return the bytes of a file. `values` are the pairs of the header, in order."""
    infos = [(tensor.name, tensor.shape, tensor.type, len(tensor.data)) for tensor in tensors]
    return b"".join((head(values, infos), *(_aligned(tensor.data) for tensor in tensors)))


def head(values: Mapping[str, bytes], infos: Sequence[tuple[str, tuple[int, ...], int, int]]) -> bytes:
    """Return a file's bytes up to its data.

    `infos` are name, shape, type and bytes of each tensor; its data is padded to `ALIGNMENT`.
    """
    found = struct.pack("<4sIQQ", _MAGIC, _VERSION, len(infos), len(values))
    found += b"".join(_string(key) + value for key, value in values.items())
    offset = 0
    for name, shape, type_, size in infos:
        found += _string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        found += struct.pack("<IQ", type_, offset)
        offset += size + -size % ALIGNMENT
    return _aligned(found)


def u32(value: int) -> bytes:
    """Return the value of an unsigned number of 32 bits."""
    return struct.pack("<II", _UINT32, value)


def f32(value: float) -> bytes:
    """Return the value of a floating-point number of 32 bits."""
    return struct.pack("<If", _FLOAT32, value)


def flag(value: bool) -> bytes:
    """Return the value of a truth value."""
    return struct.pack("<I?", _BOOL, value)


def text(value: str) -> bytes:
    """Return the value of a string."""
    return struct.pack("<I", _STRING) + _string(value)


def texts(values: Sequence[str]) -> bytes:
    """Return the value of an array of strings."""
    return struct.pack("<IIQ", _ARRAY, _STRING, len(values)) + b"".join(map(_string, values))


def i32s(values: Sequence[int]) -> bytes:
    """Return the value of an array of signed numbers of 32 bits."""
    return struct.pack(f"<IIQ{len(values)}i", _ARRAY, _INT32, len(values), *values)


def _string(value: str) -> bytes:
    content = value.encode()
    return struct.pack("<Q", len(content)) + content


def _aligned(content: bytes) -> bytes:
    return content + bytes(-len(content) % ALIGNMENT)
