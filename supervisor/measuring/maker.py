"""Write a model of any shape and type with weights from a seed: it says nothing sensible, at a real model's speed.

Weights repeat after a mebibyte, which no kernel can notice. The scales of quantised blocks are small and finite.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.gguf import tensor_type
from supervisor.demo import gguf_file as gguf
from supervisor.demo.maker import BYTES

_TILE = 1 << 20
_SCALE = struct.pack("<e", 0.004)
_SCALES = {  # where a block has its scales of 16 bits
    "q4_0": (0,), "q5_0": (0,), "q8_0": (0,), "iq4_nl": (0,),
    "q4_1": (0, 2), "q5_1": (0, 2), "q4_K": (0, 2), "q5_K": (0, 2),
    "q2_K": (80, 82), "q3_K": (108,), "q6_K": (208,), "iq4_xs": (0,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a model, in llama.cpp's words.

    Attributes:
        kind: type of the matrices, by ggml's name.
        output_kind: type of the output matrix; empty: that of the others.
        experts, used: experts of every layer, and how many a token uses; 0: none.
    """

    kind: str = "q8_0"
    n_embd: int = 1024
    n_layer: int = 4
    n_head: int = 8
    n_head_kv: int = 8
    n_ff: int = 2048
    n_vocab: int = 4096
    experts: int = 0
    used: int = 0
    output_kind: str = ""
    n_ctx: int = 32768

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.n_embd // self.n_head


@dataclass(frozen=True, slots=True)
class _Matrix:
    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def n_bytes(self) -> int:
        return tensor_type(self.kind).bytes_for(math.prod(self.shape))


def write_model(path: Path, shape: Shape, seed: int = 1) -> None:
    """Write the file. Raise KeyError for a type that cannot be made, OSError."""
    tensors = list(_tensors(shape))
    tiles = {kind: _tile(kind, random.Random(seed)) for kind in {tensor.kind for tensor in tensors}}
    infos = [(one.name, one.shape, tensor_type(one.kind).id, one.n_bytes) for one in tensors]
    with path.open("wb") as file:
        file.write(gguf.head(_metadata(shape), infos))
        for tensor in tensors:
            for piece in _pieces(tiles[tensor.kind], tensor.n_bytes):
                file.write(piece)
            file.write(bytes(-tensor.n_bytes % gguf.ALIGNMENT))


def _pieces(tile: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, size, len(tile)):
        yield tile[: size - start]


def _tile(kind: str, draw: random.Random) -> bytes:
    if kind in {"f32", "f16"}:
        letter, width = ("f", 4) if kind == "f32" else ("e", 2)
        count = _TILE // width
        few = [draw.gauss(0, 0.02) for _ in range(4099)]
        return struct.pack(f"<{count}{letter}", *(few[index % len(few)] for index in range(count)))
    size = tensor_type(kind).type_size
    tile = bytearray(draw.randbytes(_TILE // size * size))
    for block in range(0, len(tile), size):
        for place in _SCALES[kind]:
            tile[block + place : block + place + 2] = _SCALE
    return bytes(tile)


def _tensors(shape: Shape) -> Iterator[_Matrix]:
    kind, width = shape.kind, shape.n_embd
    keys = shape.head * shape.n_head_kv
    yield _Matrix("token_embd.weight", (width, shape.n_vocab), kind)
    yield _Matrix("output.weight", (width, shape.n_vocab), shape.output_kind or kind)
    yield _Matrix("output_norm.weight", (width,), "f32")
    for layer in range(shape.n_layer):
        stem = f"blk.{layer}"
        yield _Matrix(f"{stem}.attn_norm.weight", (width,), "f32")
        yield _Matrix(f"{stem}.attn_q.weight", (width, width), kind)
        yield _Matrix(f"{stem}.attn_k.weight", (width, keys), kind)
        yield _Matrix(f"{stem}.attn_v.weight", (width, keys), kind)
        yield _Matrix(f"{stem}.attn_output.weight", (width, width), kind)
        yield _Matrix(f"{stem}.ffn_norm.weight", (width,), "f32")
        yield from _feed_forward(shape, stem)


def _feed_forward(shape: Shape, stem: str) -> Iterator[_Matrix]:
    width, inner, count = shape.n_embd, shape.n_ff, shape.experts
    suffix, more = ("_exps", (count,)) if count else ("", ())
    if count:
        yield _Matrix(f"{stem}.ffn_gate_inp.weight", (width, count), "f32")
    yield _Matrix(f"{stem}.ffn_gate{suffix}.weight", (width, inner, *more), shape.kind)
    yield _Matrix(f"{stem}.ffn_up{suffix}.weight", (width, inner, *more), shape.kind)
    yield _Matrix(f"{stem}.ffn_down{suffix}.weight", (inner, width, *more), shape.kind)


def _metadata(shape: Shape) -> dict[str, bytes]:
    tokens = [*BYTES, *(f"<{number}>" for number in range(len(BYTES), shape.n_vocab))]
    found = {
        "general.architecture": gguf.text("llama"),
        "general.name": gguf.text("generated"),
        "llama.context_length": gguf.u32(shape.n_ctx),
        "llama.embedding_length": gguf.u32(shape.n_embd),
        "llama.block_count": gguf.u32(shape.n_layer),
        "llama.feed_forward_length": gguf.u32(shape.n_ff),
        "llama.attention.head_count": gguf.u32(shape.n_head),
        "llama.attention.head_count_kv": gguf.u32(shape.n_head_kv),
        "llama.rope.dimension_count": gguf.u32(shape.head),
        "llama.attention.layer_norm_rms_epsilon": gguf.f32(1e-5),
        "tokenizer.ggml.model": gguf.text("gpt2"),
        "tokenizer.ggml.pre": gguf.text("gpt-2"),
        "tokenizer.ggml.tokens": gguf.texts(tokens),
        "tokenizer.ggml.token_type": gguf.i32s([1] * shape.n_vocab),
        "tokenizer.ggml.merges": gguf.texts(["Ā Ā"]),
        "tokenizer.ggml.eos_token_id": gguf.u32(0),
        "tokenizer.ggml.add_bos_token": gguf.flag(False),
    }
    if shape.experts:
        found["llama.expert_count"] = gguf.u32(shape.experts)
        found["llama.expert_used_count"] = gguf.u32(shape.used)
    return found
