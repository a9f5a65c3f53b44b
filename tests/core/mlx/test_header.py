"""Headers of safetensors files: whole ones, and all the ways in which one can lie."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.core.mlx.dropped import is_dropped
from supervisor.core.mlx.header import (
    MAX_HEADER,
    MAX_HEADERS,
    SafetensorsHeader,
    Tensor,
    bounded,
    header_bytes,
    read_header,
)
from supervisor.errors import SafetensorsError
from tests.support.safetensors import entries, safetensors

WHOLE = safetensors({"a": ("BF16", (2, 3)), "b": ("U32", (4,)), "none": ("F32", (0, 7))})


def read(data: bytes) -> tuple[Tensor, ...]:
    length = header_bytes(data[:8], len(data))
    return read_header(data[8 : 8 + length], len(data)).tensors


def of(text: bytes, size: int) -> tuple[Tensor, ...]:
    return read(len(text).to_bytes(8, "little") + text + bytes(size))


def test_a_whole_header_is_read() -> None:
    tensors = {tensor.name: tensor for tensor in read(WHOLE)}
    assert tensors["a"] == Tensor("a", "BF16", (2, 3), 12)
    assert tensors["b"].n_bytes == 16
    assert tensors["none"].n_bytes == 0


def test_metadata_is_no_tensor() -> None:
    header = {"__metadata__": {"format": "mlx"}, **entries({"a": ("F32", (2,))})}
    assert [tensor.name for tensor in of(json.dumps(header).encode(), 8)] == ["a"]


A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ({"a": {**A, "data_offsets": [0, 4]}}, 4),
        ({"a": {**A, "data_offsets": [8, 0]}}, 8),
        ({"a": {**A, "data_offsets": [-8, 0]}}, 0),
        ({"a": {**A, "shape": [-2]}}, 8),
        ({"a": {**A, "shape": [1 << 62, 1 << 62]}}, 8),
        ({"a": {**A, "shape": [1] * 17}}, 8),
        ({"a": {**A, "data_offsets": [0, 1 << 70]}}, 8),
        ({"a": A}, 4),
        ({"a": A}, 12),
        ({"a": A, "b": A}, 8),
        ({"a": A, "b": {**A, "data_offsets": [12, 20]}}, 20),
        ({"a": 7}, 0),
        ([], 0),
    ],
)
def test_a_header_that_its_file_contradicts_is_refused(header: Any, size: int) -> None:
    with pytest.raises(SafetensorsError) as refused:
        of(json.dumps(header).encode(), size)
    assert refused.value.code == "safetensors_invalid"


@pytest.mark.parametrize("text", [b"", b"{", b"{}x", b"[" * 100_000, b'{"a":' * 50_000, b'{"\xff":1}', b"\0\0"])
def test_what_is_no_header_is_refused(text: bytes) -> None:
    with pytest.raises(SafetensorsError):
        of(text, 0)


@pytest.mark.parametrize("cut", range(0, len(WHOLE), 7))
def test_a_file_that_was_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(SafetensorsError):
        read(WHOLE[:cut])


def test_a_header_may_not_be_longer_than_its_bound() -> None:
    assert header_bytes(MAX_HEADER.to_bytes(8, "little"), 1 << 40) == MAX_HEADER
    for length in (MAX_HEADER + 1, (1 << 64) - 1):
        with pytest.raises(SafetensorsError):
            header_bytes(length.to_bytes(8, "little"), 1 << 65)


@pytest.mark.parametrize("key", ["dtype", "shape", "data_offsets", "more"])
def test_what_is_said_of_a_tensor_has_a_bound(key: str) -> None:
    said = {"dtype": "F32" * 2000, "shape": [1] * 2000, "data_offsets": [0] * 2000, "more": "x" * 5000}
    with pytest.raises(SafetensorsError, match="more than 4096 bytes of a tensor"):
        of(json.dumps({"a": {**A, key: said[key]}}).encode(), 8)


def test_headers_of_many_files_have_a_bound_together() -> None:
    read = list[int]()

    def files() -> Iterator[SafetensorsHeader]:
        for number in range(100):
            read.append(number)
            yield SafetensorsHeader((), MAX_HEADER)

    with pytest.raises(SafetensorsError, match="together"):
        bounded(files())
    assert len(read) == MAX_HEADERS // MAX_HEADER + 1
    assert len(bounded([SafetensorsHeader((), MAX_HEADER)] * 2)) == 2


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        ("model.layers.1.mlp.up_proj.weight", False),
        ("model.layers.2.mlp.up_proj.weight", True),
        ("lm_head.weight", True),
        ("vision_tower.layers.0.weight", True),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", True),
        ("mtp.fc.weight", True),
        ("model.norm.weight", False),
    ],
)
def test_what_mlx_leaves_out_is_known(name: str, dropped: bool) -> None:
    assert is_dropped(name, layers=2, tied=True) is dropped


def test_the_order_of_the_data_is_found_without_sorting() -> None:
    """To sort hundreds of thousands of entries keeps all other threads of the process waiting, in one step of it."""
    told = entries({f"t{number}": ("U8", (number % 2,)) for number in range(64)})
    shuffled = dict(reversed(told.items()))
    built_in: list[str] = []
    sys.setprofile(lambda _frame, event, what: built_in.append(what.__name__) if event == "c_call" else None)
    try:
        found = of(json.dumps(shuffled).encode(), 32)
    finally:
        sys.setprofile(None)
    assert [tensor.name for tensor in found if tensor.n_bytes] == [f"t{number}" for number in range(1, 64, 2)]
    assert len(found) == 64
    assert not {"sorted", "sort"} & set(built_in)


@pytest.mark.parametrize("place", ["9" * 5000, "9" * 10])
def test_numbers_of_layers_that_python_does_not_read_are_beyond_the_model(place: str) -> None:
    assert is_dropped(f"model.layers.{place}.w", layers=2, tied=False)
