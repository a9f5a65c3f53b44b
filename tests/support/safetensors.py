"""Safetensors files, as bytes: whole ones, and ones that lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "U32": 4, "U8": 1}
SMALL_LLAMA: Mapping[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96, "vocab_size": 128,
    "max_position_embeddings": 4096,
}  # fmt: skip


def entries(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """Return the header of tensors one behind the other."""
    found: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in shapes.items():
        begin, count = end, 1
        for side in shape:
            count *= side
        end += count * _WIDTHS[dtype]
        found[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return found


def safetensors(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> bytes:
    """Return a whole file, its data zeros."""
    header = entries(shapes)
    text = json.dumps(header).encode()
    size = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    return len(text).to_bytes(8, "little") + text + bytes(size)


def small_files(config: Mapping[str, Any] = SMALL_LLAMA) -> dict[str, bytes]:
    """Return the files of a small model by name."""
    weights = {"model.embed_tokens.weight": ("BF16", (128, 64)), "lm_head.weight": ("BF16", (128, 64))}
    return {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"chat_template": "x"}',
        "model.safetensors": safetensors(weights),
    }


def write_small(folder: Path, config: Mapping[str, Any] = SMALL_LLAMA) -> Path:
    """Write a small model into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in small_files(config).items():
        (folder / name).write_bytes(data)
    return folder
