"""Models of random weights in the shapes of real families, of any size, written as fast as the disk takes them."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.demo import gguf_file as gguf

GIB = 1 << 30
CONTEXT = 1 << 20  # tokens the models claim to be trained for: no limit to what a check asks for
TYPES = {"q8_0": 8, "f16": gguf.F16}
"""Of matrices, by ggml's numbers."""
_F32 = gguf.F32
_BLOCK, _BLOCK_BYTES = 32, 34
_ALIGNMENT = 32
_BLOCKS = 65_537  # of the pattern: a prime, so that rows differ
_WEIGHT = 1 / 2048  # of the scale: activations neither vanish nor overflow
_HALF = 0x28  # the upper byte of a half between 1/32 and 5/128


@dataclass(frozen=True)
class Shape:
    """The dimensions of a model; `depth` is how many layers the real one has; `experts` 0: dense."""

    family: str
    depth: int
    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    experts: int = 0
    used: int = 0

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """A layer's matrices, the fastest dimension first."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        found: dict[str, tuple[int, ...]] = {
            "attn_q": (self.embedding, queries),
            "attn_k": (self.embedding, keys),
            "attn_v": (self.embedding, keys),
            "attn_output": (queries, self.embedding),
        }
        more = (self.experts,) if self.experts else ()
        suffix = "_exps" if self.experts else ""
        found[f"ffn_gate{suffix}"] = (self.embedding, self.feed_forward, *more)
        found[f"ffn_up{suffix}"] = (self.embedding, self.feed_forward, *more)
        found[f"ffn_down{suffix}"] = (self.feed_forward, self.embedding, *more)
        return found

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """A layer's tensors in full precision."""
        found: dict[str, tuple[int, ...]] = {"attn_norm": (self.embedding,), "ffn_norm": (self.embedding,)}
        if self.experts:
            found |= {"attn_q_norm": (self.head,), "attn_k_norm": (self.head,)}
            found["ffn_gate_inp"] = (self.embedding, self.experts)
        return found

    def layer_bytes(self, kind: int) -> int:
        """Of one layer, with matrices of this type."""
        matrices = sum(_bytes_of(shape, kind) for shape in self.matrices.values())
        return matrices + sum(_bytes_of(shape, _F32) for shape in self.vectors.values())

    def other_bytes(self, kind: int) -> int:
        """Of what is in no layer."""
        return 2 * _bytes_of((self.embedding, self.vocabulary), kind) + 4 * self.embedding


SHAPES = (  # from small to large in each family; the first of each is no real model
    Shape("llama", 8, 256, 1024, 4, 2, 64, 4096),
    Shape("llama", 16, 2048, 8192, 32, 8, 64, 128_256),  # Llama 3.2 1B
    Shape("llama", 32, 4096, 14_336, 32, 8, 128, 128_256),  # Llama 3 8B
    Shape("llama", 80, 8192, 28_672, 64, 8, 128, 128_256),  # Llama 3 70B
    Shape("qwen3moe", 8, 256, 128, 4, 2, 64, 4096, 16, 4),
    Shape("qwen3moe", 48, 2048, 768, 32, 4, 128, 151_936, 128, 8),  # Qwen3 30B-A3B
    Shape("qwen3moe", 94, 4096, 1536, 64, 4, 128, 151_936, 128, 8),  # Qwen3 235B-A22B
)
FAMILIES = tuple(dict.fromkeys(shape.family for shape in SHAPES))


@dataclass(frozen=True)
class Model:
    """A model to be written: its name, shape, number of layers, and the type of its matrices."""

    name: str
    shape: Shape
    layers: int
    kind: int = 8

    @property
    def n_bytes(self) -> int:
        """Of its tensors; the header is beside that."""
        return self.shape.other_bytes(self.kind) + self.layers * self.shape.layer_bytes(self.kind)


def model_of(family: str, gib: float, kind: int = TYPES["q8_0"]) -> Model:
    """The shape of the family that comes nearest to its real depth at this size; one layer at least."""
    name = f"{family}-{gib:g}g"
    shapes = [shape for shape in SHAPES if shape.family == family]
    deep = [
        Model(name, shape, round((gib * GIB - shape.other_bytes(kind)) / shape.layer_bytes(kind)), kind)
        for shape in shapes
    ]
    possible = [model for model in deep if model.layers > 0] or [Model(name, shapes[0], 1, kind)]
    return min(possible, key=lambda model: abs(math.log(model.layers / model.shape.depth)))


def tensors_of(model: Model) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Name, shape and type of every tensor, in the file's order."""
    shape = model.shape
    yield "token_embd.weight", (shape.embedding, shape.vocabulary), model.kind
    for layer in range(model.layers):
        for name, dimensions in shape.vectors.items():
            yield f"blk.{layer}.{name}.weight", dimensions, _F32
        for name, dimensions in shape.matrices.items():
            yield f"blk.{layer}.{name}.weight", dimensions, model.kind
    yield "output_norm.weight", (shape.embedding,), _F32
    yield "output.weight", (shape.embedding, shape.vocabulary), model.kind


def write_model(path: Path, model: Model, progress: Callable[[float], None] = lambda _: None) -> None:
    """Write the file. The weights repeat a pattern of 2 MiB of random numbers; `progress` hears a fraction."""
    tensors = list(tensors_of(model))
    pattern = _pattern(model.kind)
    written = 0
    with path.open("wb", buffering=0) as file:
        file.write(_head(model, tensors))
        for _, dimensions, kind in tensors:
            size = _bytes_of(dimensions, kind)
            _fill(file.write, _ONES if kind == _F32 else pattern, size)
            written += size
            progress(written / model.n_bytes)


_ONES = struct.pack("<f", 1.0) * (1 << 14)


def _fill(write: Callable[[bytes | memoryview], int | None], pattern: bytes, size: int) -> None:
    for start in range(0, size, len(pattern)):
        write(memoryview(pattern)[: size - start])
    write(bytes(-size % _ALIGNMENT))


def _pattern(kind: int) -> bytes:
    """Random blocks: a scale and signed bytes; or halves of one size and random signs and last digits."""
    numbers = random.Random(1)
    if kind == gguf.F16:
        return b"".join(bytes((number & 255, _HALF | number >> 8 & 128)) for number in _words(numbers))
    scale = struct.pack("<e", _WEIGHT)
    return b"".join(scale + numbers.randbytes(_BLOCK) for _ in range(_BLOCKS))


def _words(numbers: random.Random) -> memoryview:
    return memoryview(numbers.randbytes(2 * _BLOCKS)).cast("H")


def _bytes_of(dimensions: tuple[int, ...], kind: int) -> int:
    elements = 1
    for dimension in dimensions:
        elements *= dimension
    if kind == TYPES["q8_0"]:
        return elements // _BLOCK * _BLOCK_BYTES
    return elements * (2 if kind == gguf.F16 else 4)


def _head(model: Model, tensors: list[tuple[str, tuple[int, ...], int]]) -> bytes:
    values = _metadata(model)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(values))
    head += b"".join(_string(key) + value for key, value in values.items())
    offset = 0
    for name, dimensions, kind in tensors:
        head += _string(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += struct.pack("<IQ", kind, offset)
        size = _bytes_of(dimensions, kind)
        offset += size + -size % _ALIGNMENT
    return head + bytes(-len(head) % _ALIGNMENT)


def _string(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _metadata(model: Model) -> dict[str, bytes]:
    shape = model.shape
    sizes = {
        "context_length": CONTEXT,
        "embedding_length": shape.embedding,
        "block_count": model.layers,
        "feed_forward_length": shape.feed_forward * (shape.used or 1),
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "rope.dimension_count": shape.head,
        "vocab_size": shape.vocabulary,
    }
    if shape.experts:
        sizes |= {"expert_count": shape.experts, "expert_used_count": shape.used}
        sizes |= {"expert_feed_forward_length": shape.feed_forward}
    return {
        "general.architecture": gguf.text(shape.family),
        "general.name": gguf.text(model.name),
        **{f"{shape.family}.{key}": gguf.u32(value) for key, value in sizes.items()},
        f"{shape.family}.attention.layer_norm_rms_epsilon": gguf.f32(1e-6),
        f"{shape.family}.rope.freq_base": gguf.f32(500_000.0),
        **_vocabulary(shape.vocabulary),
    }


def _vocabulary(size: int) -> dict[str, bytes]:
    """A byte-level vocabulary: 256 bytes, the end token, and texts that no prompt has."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [chr(256 + place) for place in range(256 - len(printable))]
    texts = [*map(chr, printable), *others, "<|end|>", *(f"t{number:06d}" for number in range(size - 257))]
    return {
        "tokenizer.ggml.model": gguf.text("gpt2"),
        "tokenizer.ggml.pre": gguf.text("gpt-2"),
        "tokenizer.ggml.tokens": gguf.texts(texts),
        "tokenizer.ggml.token_type": gguf.i32s([1] * 256 + [3] + [1] * (size - 257)),
        "tokenizer.ggml.merges": gguf.texts(["Ā Ā"]),
        "tokenizer.ggml.eos_token_id": gguf.u32(256),
    }
