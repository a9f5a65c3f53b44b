"""The tensor types of ggml: their numbers, names and sizes (llama.cpp b11434, `ggml/src/ggml.c`).

A type packs `block` elements into `type_size` bytes. Numbers that are missing belonged to types that were removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor type: its number in a file, its name, elements per block, bytes per block."""

    id: int
    name: str
    block: int
    type_size: int

    @property
    def quantized(self) -> bool:
        return self.block > 1

    def bytes_for(self, n_elements: int) -> int:
        """Return the bytes of `n_elements` elements, which must be whole blocks."""
        return n_elements * self.type_size // self.block


_TYPES = (
    TensorType(0, "f32", 1, 4),
    TensorType(1, "f16", 1, 2),
    TensorType(2, "q4_0", 32, 18),
    TensorType(3, "q4_1", 32, 20),
    TensorType(6, "q5_0", 32, 22),
    TensorType(7, "q5_1", 32, 24),
    TensorType(8, "q8_0", 32, 34),
    TensorType(9, "q8_1", 32, 36),
    TensorType(10, "q2_K", 256, 84),
    TensorType(11, "q3_K", 256, 110),
    TensorType(12, "q4_K", 256, 144),
    TensorType(13, "q5_K", 256, 176),
    TensorType(14, "q6_K", 256, 210),
    TensorType(15, "q8_K", 256, 292),
    TensorType(16, "iq2_xxs", 256, 66),
    TensorType(17, "iq2_xs", 256, 74),
    TensorType(18, "iq3_xxs", 256, 98),
    TensorType(19, "iq1_s", 256, 50),
    TensorType(20, "iq4_nl", 32, 18),
    TensorType(21, "iq3_s", 256, 110),
    TensorType(22, "iq2_s", 256, 82),
    TensorType(23, "iq4_xs", 256, 136),
    TensorType(24, "i8", 1, 1),
    TensorType(25, "i16", 1, 2),
    TensorType(26, "i32", 1, 4),
    TensorType(27, "i64", 1, 8),
    TensorType(28, "f64", 1, 8),
    TensorType(29, "iq1_m", 256, 56),
    TensorType(30, "bf16", 1, 2),
    TensorType(34, "tq1_0", 256, 54),
    TensorType(35, "tq2_0", 256, 66),
    TensorType(39, "mxfp4", 32, 17),
    TensorType(40, "nvfp4", 64, 36),
    TensorType(41, "q1_0", 128, 18),
    TensorType(42, "q2_0", 64, 18),
)

TENSOR_TYPES: Mapping[int, TensorType] = MappingProxyType({type_.id: type_ for type_ in _TYPES})
_BY_NAME = {type_.name: type_ for type_ in _TYPES}

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
CACHE_TYPES: tuple[str, ...] = get_args(CacheType)
"""Types that `--cache-type-k` and `--cache-type-v` accept."""


def tensor_type(type_: str | int) -> TensorType:
    """Return the type of this name or number. Raise KeyError where there is none."""
    return _BY_NAME[type_] if isinstance(type_, str) else TENSOR_TYPES[type_]


def type_name(number: int) -> str:
    """Return the type's name; `type 99` for one that is not known."""
    known = TENSOR_TYPES.get(number)
    return known.name if known else f"type {number}"


def row_bytes(type_: str | int, n_elements: int) -> int:
    """Return the bytes of `n_elements` elements of this type, which must be whole blocks."""
    return tensor_type(type_).bytes_for(n_elements)
