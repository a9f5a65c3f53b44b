"""The table of tensor types against the one of the gguf package."""

from __future__ import annotations

import gguf
import pytest

from supervisor.core.gguf import CACHE_TYPES, TENSOR_TYPES, row_bytes, tensor_type, type_name


@pytest.mark.parametrize("known", gguf.GGMLQuantizationType, ids=lambda known: known.name)
def test_sizes_are_those_of_the_gguf_package(known: gguf.GGMLQuantizationType) -> None:
    ours = TENSOR_TYPES[known.value]
    written = (32, 36) if known.name == "Q8_1" else gguf.GGML_QUANT_SIZES[known]  # the package has an older q8_1
    assert (ours.block, ours.type_size) == written
    assert ours.name.upper() == known.name.upper()
    assert ours.quantized == (ours.block > 1)


def test_rows() -> None:
    assert row_bytes("f16", 4096) == row_bytes(1, 4096) == 8192
    assert row_bytes("q8_0", 4096) == 4096 // 32 * 34
    assert row_bytes("q4_K", 512) == 288


def test_names() -> None:
    assert tensor_type("q4_K") is tensor_type(12)
    assert (type_name(39), type_name(99)) == ("mxfp4", "type 99")
    assert {tensor_type(name).name for name in CACHE_TYPES} == set(CACHE_TYPES)
    with pytest.raises(KeyError):
        row_bytes("q4_2", 32)
