"""Scripted models with weights: they say their text as others do, and fill devices.

A scripted model has one block of zeros. More and wider blocks of zeros change nothing of what it says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import gguf
import numpy

MIB = 1 << 20
_MATRICES = ("ffn_gate", "ffn_up", "ffn_down")


class WeightyModel(Protocol):
    """The `weighty_model` fixture: a scripted model with this name, so many blocks, and so many MiB in each."""

    def __call__(self, name: str, *, blocks: int = ..., mib: int = ..., endless: bool = ...) -> Path: ...


def write_weighty(path: Path, scripted: Path, blocks: int, mib: int) -> Path:
    """Write the model `scripted` with so many blocks of `mib` MiB each. The weights are holes in the file."""
    source = gguf.GGUFReader(scripted)
    writer = gguf.GGUFWriter(path, "llama")
    width = int(source.get_tensor(0).shape[0])
    feed_forward = mib * MIB // (len(_MATRICES) * width * 2)
    changed = {"llama.block_count": blocks, "llama.feed_forward_length": feed_forward}
    for key, field in source.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if key in changed:
            writer.add_uint32(key, changed[key])
            continue
        sub_type = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(key, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in source.tensors:
        if not tensor.name.startswith("blk."):
            writer.add_tensor(tensor.name, tensor.data)
    for number in range(blocks):
        for tensor in source.tensors:
            part = tensor.name.removeprefix("blk.0.")
            if part != tensor.name:
                writer.add_tensor(f"blk.{number}.{part}", _resized(tensor, part, width, feed_forward))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _resized(tensor: gguf.ReaderTensor, part: str, width: int, feed_forward: int) -> numpy.ndarray:
    name = part.removesuffix(".weight")
    if name not in _MATRICES:
        return tensor.data
    shape = (width, feed_forward) if name == "ffn_down" else (feed_forward, width)
    return numpy.zeros(shape, numpy.float16)
