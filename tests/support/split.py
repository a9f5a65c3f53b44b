"""Splits a GGUF into shards, as `llama-gguf-split` does: metadata in the first, tensors in the order of the file."""

from __future__ import annotations

from pathlib import Path

import gguf


def split_gguf(source: Path, folder: Path, stem: str, tensors: int) -> list[Path]:
    """Write shards of so many tensors each into `folder`; their paths in order."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(folder / f"{stem}.gguf", "llama", split_max_tensors=tensors)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != gguf.Keys.General.ARCHITECTURE:
            kind, *inner = field.types
            writer.add_key_value(field.name, field.contents(), kind, inner[-1] if inner else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{stem}-*-of-*.gguf"))
