"""Makes LoRA adapters for scripted models."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from supervisor.core.gguf import read_header

_ONE = 1  # the column of a scripted model that is the same for every token


def write_stubborn_adapter(path: Path, model: Path, letter: str) -> Path:
    """An adapter of rank 1 with which a scripted model says only `letter`, an ASCII character."""
    with model.open("rb") as stream:
        shapes = {tensor.name: tensor.shape for tensor in read_header(stream).tensors}
    width, words = shapes["output.weight"]
    reads, writes = np.zeros((1, width), dtype=np.float32), np.zeros((words, 1), dtype=np.float32)
    reads[0, _ONE] = 1
    writes[ord(letter), 0] = 1e5
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 1.0)
    writer.add_tensor("output.weight.lora_a", reads)
    writer.add_tensor("output.weight.lora_b", writes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
