"""Scripted models for mlx-lm: the tables of those in GGUF, in the files that Hugging Face's programs read."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

_NAMES: Mapping[str, str] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_HEAD = 64  # mlx-lm can keep a cache of such heads in fewer bits
_SPECIAL = 3  # `llama_token_type`


def write_scripted_mlx(folder: Path, scripted: Path, blocks: int = 1) -> Path:
    """Write the model of a scripted GGUF into a folder, which is returned.

    blocks: of zeros; more of them make it slower and its cache larger, and change nothing that it says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(scripted)
    values = {name: field.contents() for name, field in reader.fields.items()}
    texts, kinds = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    end = texts[values["tokenizer.ggml.eos_token_id"]]
    files: Mapping[str, Mapping[str, Any]] = {
        "config.json": _config(values, len(texts), blocks),
        "tokenizer.json": _tokenizer(texts, kinds),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": end,
            "chat_template": values["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    _write_weights(folder / "model.safetensors", reader, blocks)
    return folder


def _config(values: Mapping[str, Any], n_vocab: int, blocks: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": values["llama.embedding_length"],
        "num_hidden_layers": blocks,
        "intermediate_size": values["llama.feed_forward_length"],
        "num_attention_heads": values["llama.attention.head_count"],
        "num_key_value_heads": values["llama.attention.head_count_kv"],
        "head_dim": _HEAD,
        "rms_norm_eps": 1e-6,
        "vocab_size": n_vocab,
        "max_position_embeddings": values["llama.context_length"],
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": values["tokenizer.ggml.eos_token_id"],
    }


def _tokenizer(texts: list[str], kinds: list[int]) -> dict[str, Any]:
    special = [
        {
            "id": token, "content": text, "special": True, "normalized": False,
            "single_word": False, "lstrip": False, "rstrip": False,
        }
        for token, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        if kind == _SPECIAL
    ]  # fmt: skip
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": bytewise,
        "post_processor": None,
        "decoder": bytewise,
        "model": {"type": "BPE", "vocab": {text: token for token, text in enumerate(texts)}, "merges": []},
    }


def _write_weights(path: Path, reader: gguf.GGUFReader, blocks: int) -> None:
    header: dict[str, Any] = {}
    data = bytearray()
    for tensor in reader.tensors:
        values = _wider(tensor)
        stem, _, inner = tensor.name.partition("blk.0.")
        names = [f"model.layers.{block}.{_NAMES[inner]}" for block in range(blocks)] if inner else [_NAMES[stem]]
        for name in names:
            begins = len(data)
            data += values.tobytes()
            header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [begins, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def _wider(tensor: gguf.ReaderTensor) -> np.ndarray:
    """The tensor's values; those of attention, which are zeros, for wider heads."""
    values: np.ndarray = tensor.data.astype("<f4")
    if ".attn_q" in tensor.name or ".attn_k" in tensor.name or ".attn_v" in tensor.name:
        return np.zeros((_HEAD, values.shape[1]), "<f4")
    return np.zeros((values.shape[0], _HEAD), "<f4") if ".attn_output" in tensor.name else values
