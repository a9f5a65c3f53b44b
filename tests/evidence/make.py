"""Writes GGUF files of a header and nothing: the tensor data is a hole in the file, whatever its size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy

from tests.evidence.architectures import Metadata, Wide

ALIGNMENT = 32


@dataclass(frozen=True)
class Tensor:
    """Shape as in the file: the fastest dimension first."""

    name: str
    shape: tuple[int, ...]
    type: str = "F32"

    @property
    def n_bytes(self) -> int:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[self.type]]
        elements = 1
        for dimension in self.shape:
            elements *= dimension
        return int(elements // block * size)


def write_model(path: Path, metadata: Metadata, tensors: Iterable[Tensor]) -> None:
    """A file of the size the tensors ask for, of which only the header is on the disk."""
    writer = gguf.GGUFWriter(path, str(metadata["general.architecture"]))
    for key, value in metadata.items():
        if key != "general.architecture":
            _add(writer, key, value)
    data = 0
    for tensor in tensors:
        kind = gguf.GGMLQuantizationType[tensor.type]
        # the package wants the slowest dimension first, and for quantised types the shape in bytes
        block, size = gguf.GGML_QUANT_SIZES[kind]
        row = tensor.shape[0] // block * size if block > 1 else tensor.shape[0]
        shape = (*reversed(tensor.shape[1:]), row)
        dtype = numpy.dtype("uint8" if block > 1 else "float32")
        writer.add_tensor_info(tensor.name, shape, dtype, tensor.n_bytes, raw_dtype=kind)
        data += -(-tensor.n_bytes // ALIGNMENT) * ALIGNMENT
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    header = -(-path.stat().st_size // ALIGNMENT) * ALIGNMENT
    with path.open("r+b") as file:
        file.truncate(header + data)


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    types = gguf.GGUFValueType
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, Wide):
        writer.add_key_value(key, list(value.items), types.ARRAY, sub_type=types.UINT64)
    elif isinstance(value, list) and value and isinstance(value[0], int):
        writer.add_key_value(key, value, types.ARRAY, sub_type=types.UINT32)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        raise TypeError(f"{key}: {type(value).__name__}")
