"""Specs of what is on record in `tests/evidence`, made in memory."""

from __future__ import annotations

from functools import cache

import gguf

from supervisor.core.gguf import GgufHeader, GgufValue, TensorInfo, row_bytes
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.memory.cache import Cache
from supervisor.core.spec import ModelSpec, read_spec
from tests.evidence.architectures import Metadata, Wide
from tests.evidence.make import ALIGNMENT, Tensor
from tests.evidence.subjects import metadata_of, tensors_of

MIB = 1 << 20


def header_of(metadata: Metadata, tensors: list[Tensor]) -> GgufHeader:
    """As it would be read from the file."""
    infos: list[TensorInfo] = []
    offset = 0
    for tensor in tensors:
        number = int(gguf.GGMLQuantizationType[tensor.type])
        infos.append(TensorInfo(tensor.name, tensor.shape, number, offset))
        offset += -(-(infos[-1].n_bytes or 0) // ALIGNMENT) * ALIGNMENT
    return GgufHeader(
        version=3,
        byte_order="little",
        metadata={key: _value(value) for key, value in metadata.items()},
        tensors=tuple(infos),
        data_offset=0,
        alignment=ALIGNMENT,
        file_size=None,
    )


def _value(value: object) -> GgufValue:
    if isinstance(value, Wide):
        return value.items
    if isinstance(value, list):
        return tuple(value)
    assert isinstance(value, bool | int | float | str)
    return value


@cache
def spec_of(subject: str) -> ModelSpec:
    return read_spec(header_of(metadata_of(subject), tensors_of(subject)))


def estimated(spec: ModelSpec, options: EstimateOptions) -> MemoryEstimate:
    found = estimate(spec, options)
    assert isinstance(found, MemoryEstimate), found
    return found


def k_bytes(cache: Cache) -> int:
    return sum(row_bytes(cache.type_k, layer.k_width) for layer in cache.layers) * cache.cells * cache.streams


def v_bytes(cache: Cache) -> int:
    return sum(row_bytes(cache.type_v, layer.v_width) for layer in cache.layers) * cache.cells * cache.streams
