"""Specs and options for what is on record in `tests/evidence`, made in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import gguf

from supervisor.core.gguf import GgufHeader, GgufValue, TensorInfo
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.spec import ModelSpec, read_spec
from tests.evidence.architectures import Metadata, Wide
from tests.evidence.make import ALIGNMENT, Tensor
from tests.evidence.settings import Setting
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


_VALUES: dict[str, tuple[str, Callable[[str], object]]] = {
    "-c": ("ctx_size", int),
    "-np": ("parallel", int),
    "-b": ("batch_size", int),
    "-ub": ("ubatch_size", int),
    "-ctk": ("cache_type_k", str),
    "-ctv": ("cache_type_v", str),
    "-fa": ("flash_attn", str),
    "-ngl": ("n_gpu_layers", int),
    "-ncmoe": ("n_cpu_moe", int),
    "-ts": ("tensor_split", lambda text: tuple(float(share) for share in text.split(","))),
    "--spec-type": ("speculative", str),
    "--spec-draft-n-max": ("draft_n_max", int),
}
_FLAGS = {
    "-kvu": ("kv_unified", True),
    "--swa-full": ("swa_full", True),
    "-cmoe": ("cpu_moe", True),
    "-nkvo": ("offload_kv", False),
}


def options_of(setting: Setting) -> EstimateOptions:
    """llama-server's flags as options; devices are the workers that stand for GPUs."""
    found: dict[str, object] = {"devices": tuple(f"RPC{number}" for number in range(setting.devices)), "repack": False}
    arguments = list(setting.arguments)
    while arguments:
        flag = arguments.pop(0)
        if flag in _FLAGS:
            name, value = _FLAGS[flag]
            found[name] = value
        else:
            name, read = _VALUES[flag]
            found[name] = read(arguments.pop(0))
    return EstimateOptions(**found)  # type: ignore[arg-type] # the tables above give each its type


def estimated(spec: ModelSpec, options: EstimateOptions) -> MemoryEstimate:
    found = estimate(spec, options)
    assert isinstance(found, MemoryEstimate), found
    return found
