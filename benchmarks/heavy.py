"""Models that take long to load and short to answer: a mixture of many experts, of which a token uses two.

The weights are noise; the vocabulary is the 256 bytes. What a load costs is reading the weights; an answer reads a
small part of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

_WIDTH, _FEED_FORWARD, _HEADS, _EXPERTS = 512, 1024, 8, 64
_LAYER_BYTES = 3 * 2 * _WIDTH * _FEED_FORWARD * _EXPERTS  # of the experts in F16
_END = "<|end|>"
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]

_Half = npt.NDArray[np.float16]


def write_heavy_gguf(path: Path, size_mib: int, used: int = 2) -> int:
    """Write a model of about so many MiB, of which a token uses so many of 64 experts; its layers."""
    layers = max(1, round((size_mib << 20) / _LAYER_BYTES))
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, layers, used)
    for name, tensor in _tensors(layers):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return layers


def _write_metadata(writer: gguf.GGUFWriter, layers: int, used: int) -> None:
    spare = iter(range(256, 512))
    characters = [chr(byte) if byte in _PRINTABLE else chr(next(spare)) for byte in range(256)]
    writer.add_context_length(8192)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(used)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*characters, _END])
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL])
    writer.add_token_merges([f"{characters[0]} {characters[0]}"])
    writer.add_eos_token_id(256)
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)


def _tensors(layers: int) -> Iterator[tuple[str, npt.NDArray[np.float16 | np.float32]]]:
    noise = np.random.default_rng(1)
    ones = np.ones(_WIDTH, dtype=np.float32)

    def random(*shape: int) -> _Half:
        return (noise.standard_normal(shape, dtype=np.float32) * 0.02).astype(np.float16)

    up, down, square = (
        random(_EXPERTS, _FEED_FORWARD, _WIDTH),
        random(_EXPERTS, _WIDTH, _FEED_FORWARD),
        random(_WIDTH, _WIDTH),
    )
    output = random(257, _WIDTH)
    output[[*range(0x20), *range(0x7F, 257)]] = 0
    yield "token_embd.weight", random(257, _WIDTH)
    yield "output.weight", output
    yield "output_norm.weight", ones
    for layer in range(layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", ones
        yield f"{block}.ffn_norm.weight", ones
        yield from ((f"{block}.attn_{name}.weight", square) for name in ("q", "k", "v", "output"))
        yield f"{block}.ffn_gate_inp.weight", random(_EXPERTS, _WIDTH).astype(np.float32)
        yield f"{block}.ffn_gate_exps.weight", up
        yield f"{block}.ffn_up_exps.weight", up
        yield f"{block}.ffn_down_exps.weight", down
