"""GGUF headers: whole, cut off, mutated, hostile."""

from __future__ import annotations

import io
import math
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.gguf import ArraySummary, GgufHeader, read_header
from supervisor.core.gguf.cursor import BLOCK, MAX_HEADER
from supervisor.core.gguf.reader import KEPT_ITEMS
from supervisor.errors import GgufError
from tests.support.gguf_bytes import ARRAY, STRING, array, header, model, pair, tensor, text

_FACTS: dict[str, object] = {
    "general.architecture": "qwen3",
    "general.name": "Ünïcode 🦙",
    "qwen3.context_length": 40960,
    "qwen3.pooling_type": 3,
    "qwen3.rope.freq_base": 1000000.0,
    "split.no": 1,
    "split.count": 3,
    "split.tensors.count": 7,
    "a.bool": True,
    "a.i8": -5,
    "a.i16": -500,
    "a.u64": 2**63,
    "a.i64": -(2**62),
    "a.f64": 0.1,
    "a.few": (1, -2, 3),
    "a.flags": (True, False),
    "a.words": ("x", "", "zwei"),
    "a.none": (),
    "a.longest": tuple(range(KEPT_ITEMS)),
    "a.longer": ArraySummary("u8", KEPT_ITEMS + 1),
    "tokenizer.ggml.tokens": ArraySummary("string", 300),
    "tokenizer.ggml.scores": ArraySummary("f32", 3),
    "tokenizer.chat_template": "{{ messages }}" * 40,
}


def pairs(order: str = "<") -> list[bytes]:
    """`_FACTS`, written."""
    kinds = {
        **{"qwen3.context_length": 4, "qwen3.pooling_type": 4, "qwen3.rope.freq_base": 6, "split.no": 2},
        **{"split.count": 2, "split.tensors.count": 5, "a.bool": 7, "a.i8": 1, "a.i16": 3, "a.u64": 10, "a.i64": 11},
        **{"a.f64": 12, "a.few": 5, "a.flags": 7, "a.longest": 4},
    }
    written = []
    for key, value in _FACTS.items():
        if isinstance(value, tuple):
            written.append(array(key, kinds.get(key, STRING), value, order))
        elif not isinstance(value, ArraySummary):
            written.append(pair(key, kinds.get(key, STRING), value, order))
        elif value.type == "string":
            written.append(array(key, STRING, [f"token {n}" for n in range(value.length)], order))
        else:
            written.append(array(key, {"u8": 0, "f32": 6}[value.type], [0] * value.length, order))
    return written


def tensors(order: str = "<") -> list[bytes]:
    return [
        tensor("token_embd.weight", [64, 10], 0, 0, order),  # 2560 bytes
        tensor("blk.0.attn_q.weight", [256, 3], 12, 2560, order),  # 432, padded to 448
        tensor("blk.0.scale", [], 0, 3008, order),  # 4, padded to 32
        tensor("blk.0.empty", [0, 5], 1, 3040, order),
        tensor("output.weight", [32, 2, 2, 2], 8, 3040, order),  # 272
    ]


_WHOLE = model(pairs(), tensors(), 3040 + 272)
_SMALL = model([pair("general.architecture", STRING, "llama"), array("n", 4, [1, 2])], tensors(), 3040 + 272)


def read(data: bytes, *, sized: bool = True) -> GgufHeader:
    return read_header(io.BytesIO(data), len(data) if sized else None)


@pytest.mark.parametrize(("order", "name"), [("<", "little"), (">", "big")])
@pytest.mark.parametrize("sized", [True, False])
def test_reads_everything(order: str, name: str, sized: bool) -> None:
    found = read(model(pairs(order), tensors(order), 3040 + 272, order), sized=sized)
    assert (found.version, found.byte_order, found.alignment) == (3, name, 32)
    assert dict(found.metadata) == _FACTS
    assert list(found.metadata) == list(_FACTS)
    assert [(t.name, t.shape, t.type_name, t.offset, t.n_elements, t.n_bytes) for t in found.tensors] == [
        ("token_embd.weight", (64, 10), "f32", 0, 640, 2560),
        ("blk.0.attn_q.weight", (256, 3), "q4_K", 2560, 768, 432),
        ("blk.0.scale", (), "f32", 3008, 1, 4),
        ("blk.0.empty", (0, 5), "f16", 3040, 0, 0),
        ("output.weight", (32, 2, 2, 2), "q8_0", 3040, 256, 272),
    ]
    assert found.file_size == (len(_WHOLE) if sized else None)
    assert found.data_offset == len(_WHOLE) - 3040 - 272
    assert found.tensor_count == 5


def test_version_2_is_the_same() -> None:
    found = read(header(*pairs(), version=2))
    assert (found.version, dict(found.metadata)) == (2, _FACTS)


def test_names_the_facts() -> None:
    found = read(_WHOLE)
    assert (found.architecture, found.name, found.n_ctx_train) == ("qwen3", "Ünïcode 🦙", 40960)
    assert (found.pooling_type, found.split_no, found.split_count, found.split_tensors_count) == (3, 1, 3, 7)
    assert found.chat_template == "{{ messages }}" * 40


def test_absent_or_unusable_facts_are_none() -> None:
    found = read(header(pair("general.architecture", 4, 7), pair("split.no", STRING, "1")))
    facts = (found.architecture, found.name, found.n_ctx_train, found.pooling_type, found.chat_template)
    assert facts == (None,) * 5
    assert (found.split_no, found.split_count) == (None, None)


@pytest.mark.parametrize("order", gguf.GGUFEndian, ids=lambda order: order.name)
def test_reads_what_the_gguf_package_writes(tmp_path: Path, order: gguf.GGUFEndian) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    writer.add_custom_alignment(64)
    writer.add_uint32("llama.block_count", 7)
    writer.add_float64("a.double", math.pi)
    writer.add_array("a.array", [1, 2, 3])
    writer.add_token_list(["a", "b", "ü"])
    for number in range(3):
        writer.add_tensor(f"t{number}", np.zeros((5, 3), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as stream:
        found = read_header(stream, path.stat().st_size)
    assert (found.byte_order, found.alignment) == (order.name.lower(), 64)
    assert found.metadata["llama.block_count"] == 7
    assert found.metadata["a.double"] == math.pi
    assert found.metadata["a.array"] == (1, 2, 3)
    assert found.metadata["tokenizer.ggml.tokens"] == ArraySummary("string", 3)
    assert [(t.name, t.shape, t.offset, t.n_bytes) for t in found.tensors] == [
        (f"t{n}", (3, 5), 64 * n, 60) for n in range(3)
    ]


@given(st.integers(0, len(_SMALL) - 1))
def test_a_file_cut_anywhere_is_an_error_with_a_place(length: int) -> None:
    with pytest.raises(GgufError) as caught:
        read(_SMALL[:length])
    assert 0 <= caught.value.offset <= length


@given(st.integers(0, len(_SMALL) - 3040 - 272 - 32))
def test_without_the_size_a_header_cut_off_is_an_error_too(length: int) -> None:
    with pytest.raises(GgufError):
        read(_SMALL[:length], sized=False)


@pytest.mark.parametrize("cut", [1, 5, 29_999])
def test_a_header_cut_off_in_what_is_skipped(cut: int) -> None:
    whole = header(array("bulk", 0, bytes(30_000)))
    assert read(whole, sized=False).metadata["bulk"] == ArraySummary("u8", 30_000)
    with pytest.raises(GgufError, match="cut off"):
        read(whole[:-cut], sized=False)


@given(st.lists(st.tuples(st.integers(0, len(_SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8), st.booleans())
def test_a_damaged_file_is_an_error_or_readable(changes: list[tuple[int, int]], sized: bool) -> None:
    data = bytearray(_SMALL)
    for place, byte in changes:
        data[place] = byte
    with suppress(GgufError):  # any other exception is a defect
        assert read(bytes(data), sized=sized).version in {2, 3}


def _long_string(kind: int, length: int) -> bytes:
    return text("key") + struct.pack("<IQ", kind, length)


@pytest.mark.parametrize(
    ("data", "reason", "offset"),
    [
        (b"", "empty", 0),
        (b"GG", "magic number: 4 bytes needed, 2 left", 0),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file", 0),
        (header(version=1), "version 1;", 4),
        (header(version=4), "version 4;", 4),
        (header(version=1 << 24), "version 1;", 4),
        (header(version=3 << 24, tensors=1), "number of tensors: 72057594037927936", 8),
        (header(tensors=-1), "number of tensors: -1", 8),
        (header(tensors=2**40), "number of tensors", 8),
        (header(tensors=1), "don't fit", 8),
        (header(count=-1), "number of metadata pairs", 16),
        (header(count=2**40), "number of metadata pairs", 16),
        (header(count=60_000), "don't fit", 16),
        (header(pair("same", 4, 1), pair("same", 4, 1)), "'same' occurs twice", 44),
        (header(pair("", 4, 1), pair("k", 4, 1)), "length of a key: 0", 24),
        (header(pair(b"\xff\xfe", 4, 1), pair("k", 4, 1)), "not UTF-8", 32),
        (header(text("key") + struct.pack("<II", 13, 0) + bytes(20)), "unknown type 13", 35),
        (header(_long_string(STRING, 2**63) + bytes(20)), "9223372036854775808 bytes needed, 20 left", 47),
        (header(_long_string(STRING, 1000) + bytes(20)), "cut off", 47),
        (header(text("key") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(20)), "array of arrays", 39),
        (header(text("key") + struct.pack("<IIQ", ARRAY, 13, 1) + bytes(20)), "unknown item type 13", 39),
        (header(text("key") + struct.pack("<IIQ", ARRAY, 4, 2**62) + bytes(20)), "don't fit", 43),
        (header(text("key") + struct.pack("<IIQ", ARRAY, STRING, 2**62) + bytes(20)), "don't fit", 43),
        (header(text("key") + struct.pack("<IIQ", ARRAY, STRING, 5000) + b"\xff" * 50_000), "bytes needed", 51),
        (header(pair("general.alignment", 5, 32)), "of type i32, not u32", 24),
        (header(pair("general.alignment", 4, 0)), "not a power of two", 24),
        (header(pair("general.alignment", 4, 48)), "not a power of two", 24),
    ],
)
def test_says_what_is_wrong_and_where(data: bytes, reason: str, offset: int) -> None:
    with pytest.raises(GgufError, match=reason) as caught:
        read(data)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("infos", "reason"),
    [
        ([tensor("n" * 64, [1], 0, 0)], "name of 64 bytes"),
        ([tensor(b"\xff", [1], 0, 0)], "tensor's name is not UTF-8"),
        ([tensor("t", [1, 1, 1, 1, 1], 0, 0)], "5 dimensions"),
        ([tensor("t", [3, -1], 0, 0)], r"impossible shape \[3, -1\]"),
        ([tensor("t", [2**32, 2**32], 0, 0)], "impossible shape"),
        ([tensor("t", [2**62, 0, 2**62], 0, 0)], "impossible shape"),
        ([tensor("t", [33], 8, 0)], "not whole blocks of q8_0"),
        ([tensor("t", [], 8, 0)], "not whole blocks of q8_0"),
        ([tensor("t", [1], 0, 32)], "begins at 32, not where it has to: 0"),
        ([tensor("t", [1], 0, 0), tensor("t", [1], 0, 32)], "'t' occurs twice"),
        ([tensor("t", [1], 0, 0), tensor("u", [1], 0, 4)], "u: its data begins at 4, not where it has to: 32"),
        ([tensor("t", [1], 0, 0), tensor("u", [1], 0, 64)], "u: its data begins at 64, not where it has to: 32"),
        ([tensor("t", [1000], 0, 0)], "t: its data ends 3900 bytes after the file"),
        ([tensor("t", [1], 99, 0), tensor("u", [1], 0, 4)], "u: its data begins at 4, not where it has to: 32"),
        ([tensor("t", [1], 99, 0), tensor("u", [1], 0, 2**63)], "t: its data ends .* after the file"),
    ],
)
def test_says_what_is_wrong_with_tensors(infos: list[bytes], reason: str) -> None:
    with pytest.raises(GgufError, match=reason):
        read(model([], infos, 100))


def test_names_of_63_bytes_and_a_last_tensor_without_padding() -> None:
    assert read(model([], [tensor("n" * 63, [25], 0, 0)], 100)).tensors[0].n_bytes == 100


def test_an_unknown_type_is_sized_by_its_neighbours() -> None:
    infos = [tensor("a", [7], 99, 0), tensor("b", [2], 0, 96), tensor("c", [5], 100, 128)]
    found = read(model([], infos, 128 + 50))
    assert [(t.type_name, t.n_bytes) for t in found.tensors] == [("type 99", 96), ("f32", 8), ("type 100", 50)]
    assert [t.n_bytes for t in read(model([], infos, 0), sized=False).tensors] == [96, 8, None]


class _Remote(io.RawIOBase):
    """A stream like a range reader's: answers at most a few bytes at once, zeros after its start, forward only."""

    def __init__(self, start: bytes, size: int = MAX_HEADER * 4, most: int = 10_000) -> None:
        self._start, self._size, self._most = start, size, most
        self.position = self.read_bytes = 0

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0) -> int:
        assert whence == io.SEEK_SET
        assert offset >= self.position
        self.position = offset
        return offset

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size >= 0
        length = min(size, self._most, self._size - self.position)
        found = self._start[self.position : self.position + length]
        self.position += length
        self.read_bytes += length
        return found + bytes(length - len(found))


def test_reads_a_remote_file_forward_and_no_further_than_needed() -> None:
    tokens = array("tokenizer.ggml.merges", STRING, [f"token {n}" for n in range(40_000)])
    bulk = array("bulk", 6, [0.0] * 500_000)
    start = header(tokens, bulk, *pairs(), tensors=1) + tensor("t", [10**9], 0, 0)
    stream = _Remote(start)
    found = read_header(cast(BinaryIO, stream))
    assert found.n_ctx_train == 40960
    assert found.tensors[0].n_bytes == 4 * 10**9
    assert stream.position <= len(start) + BLOCK
    assert stream.read_bytes <= len(start) - 1_500_000 + 2 * BLOCK


def test_a_header_may_begin_inside_a_stream() -> None:
    stream = io.BytesIO(b"before" + _WHOLE)
    stream.seek(6)
    assert read_header(stream, len(_WHOLE)) == read(_WHOLE)


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (struct.pack("<IQ", STRING, 2**38), "bytes needed"),
        (struct.pack("<IIQ", ARRAY, STRING, 2**34), "don't fit"),
        (struct.pack("<IIQ", ARRAY, STRING, 2**24), "more than a header may have"),
        (struct.pack("<IIQ", ARRAY, 0, 2**34), "don't fit"),
    ],
)
@pytest.mark.parametrize("size", [None, 2**40])
def test_a_hostile_length_costs_no_memory(claim: bytes, reason: str, size: int | None) -> None:
    stream = _Remote(header(text("key") + claim, count=1))
    tracemalloc.start()
    try:
        with pytest.raises(GgufError, match=reason):
            read_header(cast(BinaryIO, stream), size)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_where_a_walk_is_likely_to_end_is_told() -> None:
    """Exactly, where all strings have one length; what comes before and after the array does not count."""
    facts = [pair("a", STRING, "x" * 100), array("t", STRING, ["token!"] * 60_000), pair("b", STRING, "x" * 100)]
    data = bytes(16) + header(*facts)
    stream, told = io.BytesIO(data), list[int]()
    stream.seek(16)
    read_header(stream, len(data) - 16, told.append)
    assert set(told) == {len(data) - len(facts[-1])}


def test_big_vocabularies_are_walked_not_kept() -> None:
    tokens = array("tokenizer.ggml.tokens", STRING, [f"▁token{n}" * (1 + n % 5) for n in range(50_000)])
    scores = array("tokenizer.ggml.scores", 6, [0.0] * 50_000)
    data = header(tokens, scores, pair("last", STRING, "here"))
    tracemalloc.start()
    try:
        found = read(data)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert found.metadata["tokenizer.ggml.tokens"] == ArraySummary("string", 50_000)
    assert found.metadata["last"] == "here"


def test_long_values_are_summarised() -> None:
    long = "b" * (BLOCK * 5)
    found = read(header(pair("long", STRING, long), array("words", STRING, ["a", long, "c"]), pair("last", 4, 9)))
    assert list(found.metadata.values()) == [ArraySummary("byte", BLOCK * 5), ArraySummary("string", 3), 9]


def test_what_is_kept_has_a_limit() -> None:
    texts = [pair(f"text {n}", STRING, "x" * 900_000) for n in range(8)]
    arrays = [array(f"array {n}", 0, bytes(4096)) for n in range(80)]
    found = list(read(header(*texts, *arrays)).metadata.values())
    assert sum(value == ArraySummary("byte", 900_000) for value in found) == 4
    assert sum(value == ArraySummary("u8", 4096) for value in found) == 16


def test_a_token_longer_than_the_read_buffer() -> None:
    tokens = array("tokenizer.ggml.tokens", STRING, ["a"] * 40 + ["b" * 600_000] + ["c"] * 40)
    assert read(header(tokens, pair("last", 4, 9))).metadata["last"] == 9


def test_reads_a_real_file(demo_model: Path) -> None:
    with demo_model.open("rb") as stream:
        found = read_header(stream, demo_model.stat().st_size)
    assert found.metadata["llama.block_count"] == 1
    assert isinstance(found.metadata["tokenizer.ggml.tokens"], ArraySummary)
    assert found.tensor_count == 12
    assert all(t.n_bytes for t in found.tensors)


@pytest.mark.parametrize("content", [b"root:*:20228:0:99999:7:::\n", b"-----BEGIN PRIVATE KEY-----\n", b"sk-1", b"k\n"])
def test_no_byte_of_a_file_that_is_no_model_is_quoted(content: bytes) -> None:
    with pytest.raises(GgufError) as failure:
        read_header(io.BytesIO(content * 10), len(content) * 10)
    told = str(failure.value)
    assert not any(content[:length].decode() in told for length in range(3, len(content)))
    assert content[:4].hex() not in told
