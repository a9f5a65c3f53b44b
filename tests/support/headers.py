"""Builds GGUF headers in memory, without a file: whole models of any architecture from a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from supervisor.core.gguf import GgufHeader, GgufValue, TensorInfo
from supervisor.core.spec import lookup

F16 = 1

STANDARD: Mapping[str, GgufValue] = MappingProxyType({
    "block_count": 8,
    "context_length": 32768,
    "embedding_length": 512,
    "features_length": 512,
    "feed_forward_length": 1024,
    "attention.head_count": 8,
    "attention.head_count_kv": 4,
    "attention.sliding_window": 512,
    "attention.kv_lora_rank": 512,
    "attention.indexer.head_count": 8,
    "attention.indexer.key_length": 128,
    "attention.indexer.top_k": 64,
    "attention.indexer.block_size": 64,
    "attention.indexer.kpool": 4,
    "attention.indexer.types": (1, 0) * 4,
    "attention.compress_ratios": (4, 128, 0, 4) * 2,
    "hyper_connection.count": 4,
    "leading_dense_block_count": 1,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 1024,
    "ssm.state_size": 64,
    "ssm.time_step_rank": 16,
    "ssm.group_count": 2,
    "wkv.head_size": 64,
    "shortconv.l_cache": 3,
    "kda.head_dim": 64,
})
"""Keys that let every architecture be read; what differs by architecture is in `model`."""

_LATENT = {
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}


def header(
    metadata: Mapping[str, GgufValue], tensors: Mapping[str, Sequence[int]] | None = None, *, kind: int = F16
) -> GgufHeader:
    """A header with these keys and tensors (name → shape, fastest dimension first), all of one type."""
    infos: list[TensorInfo] = []
    offset = 0
    for name, shape in (tensors or {}).items():
        infos.append(TensorInfo(name, tuple(shape), kind, offset))
        offset += -(-(infos[-1].n_bytes or 0) // 32) * 32
    return GgufHeader(3, "little", MappingProxyType(dict(metadata)), tuple(infos), 4096, 32, None)


def model(
    architecture: str,
    keys: Mapping[str, GgufValue | None] | None = None,
    tensors: Mapping[str, Sequence[int]] | None = None,
) -> GgufHeader:
    """A small model: eight layers, eight heads of 64.

    Args:
        keys: keys of the architecture, without its prefix, to set or (None) to leave out; a name that begins with `/`
            is a whole key.
        tensors: instead of an embedding and an output.
    """
    row = lookup(architecture)
    found: dict[str, GgufValue] = dict(STANDARD)
    if row.mla:
        found.update(_LATENT)
    if row.swa is not None and row.swa.period is None:
        found["attention.sliding_window_pattern"] = (True, False) * 4
    metadata: dict[str, GgufValue] = {"general.architecture": architecture, "tokenizer.ggml.tokens": ("a",) * 256}
    for name, value in {**found, **(keys or {})}.items():
        key = name[1:] if name.startswith("/") else f"{architecture}.{name}"
        if value is None:
            metadata.pop(key, None)
        else:
            metadata[key] = value
    return header(metadata, tensors or {"token_embd.weight": (512, 256), "output.weight": (512, 256)})
