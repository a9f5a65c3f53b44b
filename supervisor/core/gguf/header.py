"""The contents of a header: its metadata, and the name, shape, type and place of each tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from supervisor.core.gguf.ggml import TENSOR_TYPES, type_name


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """A value that was not kept: the type of its items (`u32`, `string`, …; `byte` for a text) and their number."""

    type: str
    length: int


GgufScalar: TypeAlias = bool | int | float | str
GgufValue: TypeAlias = GgufScalar | tuple[GgufScalar, ...] | ArraySummary


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of the file.

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

    def extent(self, dimension: int) -> int:
        """Return the elements along a dimension; 1 along one that it does not have, as in ggml's `ne`."""
        return self.shape[dimension] if dimension < len(self.shape) else 1

    @property
    def type_name(self) -> str:
        return type_name(self.type)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The contents of a header. Properties are None where the key is absent or of an unusable type.

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
        """Method of pooling token embeddings (llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last, 4 rank)."""
        return self.integer(f"{self.architecture}.pooling_type")

    @property
    def chat_template(self) -> str | None:
        return self.text("tokenizer.chat_template")

    @property
    def split_no(self) -> int | None:
        """Number of this part of a split model, from 0."""
        return self.integer("split.no")

    @property
    def split_count(self) -> int | None:
        return self.integer("split.count")

    @property
    def split_tensors_count(self) -> int | None:
        """Number of tensors of all parts together."""
        return self.integer("split.tensors.count")

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None
