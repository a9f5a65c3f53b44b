"""The header of a safetensors file: names, types, shapes and places of its tensors, within bounds.

A file begins with the length of its header as eight bytes, little-endian, then comes the header as JSON, then the data
of all tensors, without gaps: so the format's own description says. Nothing of a header is believed that its file
contradicts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from supervisor.errors import SafetensorsError

MAX_HEADER: Final = 16 << 20
"""Bytes of the longest header that is read: some hundred thousand tensors. The format itself allows 100 MB."""
MAX_HEADERS: Final = 2 * MAX_HEADER
"""Bytes of the headers of all files of a model."""
LENGTH: Final = 8
"""Bytes before the header, which say how long it is."""

_BITS: Final = {
    **{"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32},
    **{"F16": 16, "BF16": 16, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8},
    **{"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4},
}
_MAX_SHAPE = 16
_MAX_NUMBER = 1 << 60
_LONGEST_ENTRY = 1 << 12  # bytes of what is said of a tensor, which is parsed into far more
_METADATA = "__metadata__"
_OVERLAP = "its tensors overlap or leave gaps; copy or download it again"


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor of a file; `n_bytes` of its data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int


@dataclass(frozen=True)
class SafetensorsHeader:
    """The tensors of one file, in the order of their data; `n_bytes` of the header itself."""

    tensors: tuple[Tensor, ...]
    n_bytes: int = 0
    file_size: int = 0


class _Entry(msgspec.Struct, gc=False):  # there may be hundreds of thousands
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def header_bytes(beginning: bytes, file_size: int) -> int:
    """Return the length of the header from the file's first bytes. Raise SafetensorsError for one that cannot be."""
    length = int.from_bytes(beginning[:LENGTH], "little")
    if len(beginning) < LENGTH or file_size < LENGTH + length:
        raise SafetensorsError("the file ends within its header; copy or download it again")
    if not 2 <= length <= MAX_HEADER:
        raise SafetensorsError(f"its header would be {length} bytes long; {MAX_HEADER} are read at most")
    return length


def bounded(headers: Iterable[SafetensorsHeader]) -> list[SafetensorsHeader]:
    """Return the headers of a model's files. Raise SafetensorsError at the first that makes them too long together."""
    found, total = list[SafetensorsHeader](), 0
    for header in headers:
        total += header.n_bytes
        if total > MAX_HEADERS:
            raise SafetensorsError(f"The headers of the model's files have more than {MAX_HEADERS} bytes together.")
        found.append(header)
    return found


def read_header(text: bytes, file_size: int) -> SafetensorsHeader:
    """Return what a header says. Raise SafetensorsError for one that is damaged or that the file's size contradicts.

    Args:
        text: the header without the eight bytes before it.
        file_size: bytes of the whole file.
    """
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        raw.pop(_METADATA, None)
        if any(len(memoryview(entry)) > _LONGEST_ENTRY for entry in raw.values()):
            raise SafetensorsError(f"it says more than {_LONGEST_ENTRY} bytes of a tensor; copy or download it again")
        entries = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items()}
    except (ValueError, RecursionError):
        raise SafetensorsError("its header is not the JSON of one; copy or download it again") from None
    ordered = _in_order(entries, file_size - LENGTH - len(text))
    return SafetensorsHeader(tuple(_tensor(name, entry) for name, entry in ordered), len(text), file_size)


def _in_order(entries: Mapping[str, _Entry], data: int) -> list[tuple[str, _Entry]]:
    """Return the entries in the order of their data. Raise SafetensorsError where it is not laid out without gaps.

    They are followed from one to the next: to sort hundreds of thousands would keep all other threads waiting.
    """
    empty: dict[int, list[tuple[str, _Entry]]] = {}
    full: dict[int, tuple[str, _Entry]] = {}
    for name, entry in entries.items():
        first, last = entry.data_offsets
        if last < first or (last > first and first in full):
            raise SafetensorsError(_OVERLAP)
        if last > first:
            full[first] = name, entry
        else:
            empty.setdefault(first, []).append((name, entry))
    ordered = empty.pop(0, [])
    end = 0
    while (found := full.pop(end, None)) is not None:
        ordered.append(found)
        end = found[1].data_offsets[1]
        ordered += empty.pop(end, ())
    if full or empty:
        raise SafetensorsError(_OVERLAP)
    if end != data:
        raise SafetensorsError(f"its tensors need {end} bytes, {data} are there; copy or download it again")
    return ordered


def _tensor(name: str, entry: _Entry) -> Tensor:
    first, last = entry.data_offsets
    bits = _BITS.get(entry.dtype)
    shape = entry.shape
    if len(shape) > _MAX_SHAPE or any(not 0 <= side < _MAX_NUMBER for side in shape):
        raise SafetensorsError("a tensor's shape cannot be")
    if bits is not None and (math.prod(shape) * bits + 7) // 8 != last - first:
        raise SafetensorsError("a tensor's bytes are not those of its shape and type")
    return Tensor(name, entry.dtype, shape, last - first)
