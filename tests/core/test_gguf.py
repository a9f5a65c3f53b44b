"""GGUF headers: whole, cut off, mutated, hostile."""

from __future__ import annotations

import io
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.gguf import ArraySummary, GgufHeader, read_header
from supervisor.errors import GgufError
from tests.support.gguf_bytes import ARRAY, STRING, array, header, pair, text

_PAIRS = [
    pair("general.architecture", STRING, "qwen3"),
    pair("general.name", STRING, "Ünïcode 🦙"),
    pair("qwen3.context_length", 4, 40960),
    pair("qwen3.pooling_type", 4, 3),
    pair("qwen3.rope.freq_base", 6, 1000000.0),
    pair("split.no", 2, 1),
    pair("split.count", 2, 3),
    pair("a.bool", 7, True),
    pair("a.i8", 1, -5),
    pair("a.u64", 10, 2**63),
    pair("a.f64", 12, 0.1),
    array("a.few", 5, [1, -2, 3]),
    array("a.words", STRING, ["x", "", "zwei"]),
    array("a.none", STRING, []),
    array("tokenizer.ggml.tokens", STRING, [f"token {n}" for n in range(300)]),
    array("tokenizer.ggml.scores", 6, [0.5] * 300),
    pair("tokenizer.chat_template", STRING, "{{ messages }}" * 40),
]
_WHOLE = header(*_PAIRS, tensors=7)


def read(data: bytes) -> GgufHeader:
    return read_header(io.BytesIO(data))


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_type(version: int) -> None:
    found = read(header(*_PAIRS, tensors=7, version=version) + b"tensor infos")
    assert (found.version, found.tensor_count) == (version, 7)
    assert dict(found.metadata) == {
        "general.architecture": "qwen3",
        "general.name": "Ünïcode 🦙",
        "qwen3.context_length": 40960,
        "qwen3.pooling_type": 3,
        "qwen3.rope.freq_base": 1000000.0,
        "split.no": 1,
        "split.count": 3,
        "a.bool": True,
        "a.i8": -5,
        "a.u64": 2**63,
        "a.f64": 0.1,
        "a.few": (1, -2, 3),
        "a.words": ("x", "", "zwei"),
        "a.none": (),
        "tokenizer.ggml.tokens": ArraySummary("string", 300),
        "tokenizer.ggml.scores": ArraySummary("f32", 300),
        "tokenizer.chat_template": "{{ messages }}" * 40,
    }


def test_names_the_facts() -> None:
    found = read(_WHOLE)
    assert (found.architecture, found.name, found.n_ctx_train) == ("qwen3", "Ünïcode 🦙", 40960)
    assert (found.pooling_type, found.split_no, found.split_count) == (3, 1, 3)
    assert found.chat_template == "{{ messages }}" * 40


def test_absent_or_unusable_facts_are_none() -> None:
    found = read(header(pair("general.architecture", 4, 7), pair("split.no", STRING, "1")))
    facts = (found.architecture, found.name, found.n_ctx_train, found.pooling_type, found.chat_template)
    assert facts == (None,) * 5
    assert (found.split_no, found.split_count) == (None, None)


@given(st.integers(0, len(_WHOLE) - 1))
def test_a_file_cut_anywhere_is_an_error_with_a_place(length: int) -> None:
    with pytest.raises(GgufError) as caught:
        read(_WHOLE[:length])
    assert 0 <= caught.value.offset <= length


@given(st.lists(st.tuples(st.integers(0, len(_WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_file_is_an_error_or_readable(changes: list[tuple[int, int]]) -> None:
    data = bytearray(_WHOLE)
    for place, byte in changes:
        data[place] = byte
    assert_error_or_readable(bytes(data))


@given(st.binary(max_size=300))
def test_noise_after_the_start_is_an_error_or_readable(noise: bytes) -> None:
    assert_error_or_readable(header(count=3) + noise)


def assert_error_or_readable(data: bytes) -> None:
    with suppress(GgufError):  # any other exception is a defect
        assert read(data).version in {2, 3}


def _long_string(kind: int, length: int) -> bytes:
    return text("key") + struct.pack("<IQ", kind, length)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"GG", "cut off"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
        (header(version=1), "version 1"),
        (header(version=4), "version 4"),
        (header(version=3 << 24), "big-endian"),
        (header(tensors=-1), "number of tensors"),
        (header(tensors=2**40), "number of tensors"),
        (header(count=-1), "number of metadata pairs"),
        (header(count=2**40), "number of metadata pairs"),
        (header(count=60_000), "don't fit"),
        (header(pair("same", 4, 1), pair("same", 4, 1)), "twice"),
        (header(pair("", 4, 1), pair("k", 4, 1)), "length of a key"),
        (header(pair(b"\xff\xfe", 4, 1), pair("k", 4, 1)), "not UTF-8"),
        (header(text("key") + struct.pack("<II", 13, 0) + bytes(20)), "unknown type 13"),
        (header(_long_string(STRING, 2**63) + bytes(20)), "too long"),
        (header(_long_string(STRING, 1000) + bytes(20)), "cut off"),
        (header(text("key") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(20)), "unknown item type 9"),
        (header(text("key") + struct.pack("<IIQ", ARRAY, 4, 2**62) + bytes(20)), "don't fit"),
        (header(text("key") + struct.pack("<IIQ", ARRAY, STRING, 2**62) + bytes(20)), "don't fit"),
        (header(text("key") + struct.pack("<IIQ", ARRAY, STRING, 70) + b"\xff" * 600), "longer than the rest"),
    ],
)
def test_says_what_is_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(GgufError, match=reason):
        read(data)


class _Sparse(io.BytesIO):
    """A header that claims a huge file behind it, all zeros."""

    def __init__(self, start: bytes, size: int) -> None:
        super().__init__(start)
        self._size = size

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._size if whence == io.SEEK_END else super().seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        wanted = 0 if size is None or size < 0 else size
        found = super().read(wanted)
        return found + bytes(wanted - len(found))


@pytest.mark.parametrize(
    "claim",
    [struct.pack("<IQ", STRING, 2**38), struct.pack("<IIQ", ARRAY, STRING, 2**34)],
    ids=["text", "strings"],
)
def test_a_hostile_length_costs_no_memory(claim: bytes) -> None:
    stream: Any = _Sparse(header(text("key") + claim, count=1), 2**40)
    tracemalloc.start()
    try:
        with pytest.raises(GgufError, match="for a header"):
            read_header(stream)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


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


def test_a_token_longer_than_the_read_buffer() -> None:
    tokens = array("tokens", STRING, ["a"] * 40 + ["b" * 600_000] + ["c"] * 40)
    assert read(header(tokens, pair("last", 4, 9))).metadata["last"] == 9


def test_reads_a_real_file(demo_model: Path) -> None:
    with demo_model.open("rb") as stream:
        found = read_header(stream)
    assert found.metadata["llama.block_count"] == 1
    assert isinstance(found.metadata["tokenizer.ggml.tokens"], ArraySummary)
    assert found.tensor_count == 12
