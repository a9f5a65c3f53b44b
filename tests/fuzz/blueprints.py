"""Whole GGUF headers that know where their numbers are, so that a mutation can hit a length, a count or a type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.gguf_bytes import ARRAY, STRING, scalar


@dataclass
class Blueprint:
    """A header under construction; `numbers` are the places and widths of what steers the reader."""

    order: str = "<"
    data: bytearray = field(default_factory=bytearray)
    numbers: list[tuple[int, int]] = field(default_factory=list)

    def number(self, form: str, value: int) -> None:
        raw = struct.pack(self.order + form, value)
        self.numbers.append((len(self.data), len(raw)))
        self.data += raw

    def text(self, value: str) -> None:
        self.number("Q", len(value.encode()))
        self.data += value.encode()

    def begin(self, tensors: int, pairs: int, version: int = 3) -> None:
        self.data += b"GGUF"
        self.number("I", version)
        self.number("q", tensors)
        self.number("q", pairs)

    def pair(self, key: str, kind: int, value: object) -> None:
        self.text(key)
        self.number("I", kind)
        if kind == STRING:
            self.text(str(value))
        else:
            self.data += scalar(kind, value, self.order)

    def array(self, key: str, kind: int, items: Sequence[object]) -> None:
        self.text(key)
        self.number("I", ARRAY)
        self.number("I", kind)
        self.number("Q", len(items))
        for item in items:
            if kind == STRING:
                self.text(str(item))
            else:
                self.data += scalar(kind, item, self.order)

    def tensor(self, name: str, shape: Sequence[int], kind: int, offset: int) -> None:
        self.text(name)
        self.number("I", len(shape))
        for extent in shape:
            self.number("q", extent)
        self.number("I", kind)
        self.number("Q", offset)

    def data_section(self, size: int, alignment: int = 32) -> None:
        self.data += bytes(-len(self.data) % alignment + size)


def _model(order: str, version: int) -> Blueprint:
    made = Blueprint(order)
    made.begin(tensors=4, pairs=7, version=version)
    made.pair("general.architecture", STRING, "llama")
    made.pair("general.alignment", 4, 64)
    made.pair("llama.context_length", 4, 4096)
    made.pair("llama.rope.freq_base", 6, 10000.0)
    made.array("llama.attention.head_count_kv", 5, [8, 8, 2, 2])
    made.array("tokenizer.ggml.tokens", STRING, ["<s>", "</s>", "ä", ""])
    made.pair("tokenizer.chat_template", STRING, "{{ messages }}" * 9)
    made.tensor("token_embd.weight", [64, 4], 0, 0)
    made.tensor("blk.0.attn_q.weight", [256, 2, 2], 12, 1024)
    made.tensor("blk.0.unknown", [5], 99, 1600)
    made.tensor("scale", [], 0, 1728)
    made.data_section(1728 + 4, 64)
    return made


def _every_type() -> Blueprint:
    made = Blueprint()
    values = {0: 255, 1: -1, 2: 65535, 3: -2, 4: 2**32 - 1, 5: -3, 6: 0.5, 7: True, STRING: "ü", 10: 2**64 - 1}
    values |= {11: -(2**63), 12: 0.1}
    made.begin(tensors=0, pairs=2 * len(values))
    for kind, value in values.items():
        made.pair(f"scalar.{kind}", kind, value)
        made.array(f"array.{kind}", kind, [value] * 5)
    return made


def _split() -> Blueprint:
    made = Blueprint()
    made.begin(tensors=1, pairs=3)
    made.pair("split.no", 2, 1)
    made.pair("split.count", 2, 3)
    made.pair("split.tensors.count", 5, 3)
    made.tensor("output.weight", [32, 3], 8, 0)
    made.data_section(102)
    return made


def _empty() -> Blueprint:
    made = Blueprint()
    made.begin(tensors=0, pairs=0)
    return made


def _vocabulary() -> Blueprint:
    made = Blueprint()
    made.begin(tensors=0, pairs=4)
    made.array("tokenizer.ggml.tokens", STRING, [f"token {n}" * (1 + n % 3) for n in range(1500)])
    made.array("tokenizer.ggml.scores", 6, [0.0] * 1500)
    made.array("other", 4, range(4096))
    made.array("words", STRING, [f"word {n}" for n in range(500)])
    return made


def _wide() -> Blueprint:
    made = Blueprint()
    made.begin(tensors=300, pairs=300)
    for number in range(300):
        made.pair(f"key.{number}", 4, number)
    for number in range(300):
        made.tensor(f"blk.{number}.weight", [32, 4], 8, 160 * number)
    made.data_section(160 * 300)
    return made


def _long_texts() -> Blueprint:
    made = Blueprint()
    made.begin(tensors=0, pairs=3)
    made.pair("long", STRING, "€" * 100_000)
    made.array("tokenizer.ggml.tokens", STRING, ["x" * 300_000, "y"])
    made.pair("last", 4, 1)
    return made


def small() -> list[Blueprint]:
    """Those that are read in microseconds."""
    return [_model("<", 3), _model(">", 3), _model("<", 2), _every_type(), _split(), _empty()]


def large() -> list[Blueprint]:
    """Those with more in them than one block, or many parts."""
    makers: list[Callable[[], Blueprint]] = [_vocabulary, _wide, _long_texts]
    return [maker() for maker in makers]
