"""Estimate for people who name options: `supervisor estimate` and `POST /api/v1/estimate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from supervisor.config.base import (
    AllLayers,
    AllMebibytes,
    Bytes,
    Flag,
    Layers,
    Name,
    Names,
    Natural,
    Pattern,
    Portions,
    Slots,
    SomeTokens,
    Strict,
    Tokens,
)
from supervisor.core.devices.engine_list import backend_of
from supervisor.core.memory import EstimateOptions, MemoryEstimate, Refusal, estimate
from supervisor.core.memory.backends import BackendName
from supervisor.core.memory.options import FlashAttention, Speculative
from supervisor.core.options.kinds import MOST_OVERRIDES
from supervisor.core.spec import ModelSpec, tensor_bytes
from supervisor.errors import EstimateRefused, InvalidRequest, file_refused
from supervisor.files.model_file import open_model

_MOST_CONTEXTS = 64
_DEFAULT = EstimateOptions()
_Pair = Annotated[tuple[Pattern, ...], Field(min_length=2, max_length=2)]  # a pattern, and where it sends tensors


class EstimateGiven(Strict):
    """The fields of EstimateOptions that may be given, each with its bounds; `mmproj` as bytes."""

    ctx_size: Tokens | None = None
    parallel: Slots | None = None
    kv_unified: Flag | None = None
    batch_size: SomeTokens = _DEFAULT.batch_size
    ubatch_size: SomeTokens = _DEFAULT.ubatch_size
    cache_type_k: Name = _DEFAULT.cache_type_k
    cache_type_v: Name = _DEFAULT.cache_type_v
    flash_attn: FlashAttention = _DEFAULT.flash_attn
    swa_full: Flag = _DEFAULT.swa_full
    n_gpu_layers: AllLayers | None = None
    tensor_split: Portions = ()
    devices: Names = _DEFAULT.devices
    n_cpu_moe: Layers = _DEFAULT.n_cpu_moe
    cpu_moe: Flag = _DEFAULT.cpu_moe
    override_tensors: Annotated[tuple[_Pair, ...], Field(max_length=MOST_OVERRIDES)] = ()
    offload_kv: Flag = _DEFAULT.offload_kv
    embeddings: Flag = _DEFAULT.embeddings
    speculative: Speculative = _DEFAULT.speculative
    draft_n_max: Natural = _DEFAULT.draft_n_max
    cache_type_k_draft: Name = _DEFAULT.cache_type_k_draft
    cache_type_v_draft: Name = _DEFAULT.cache_type_v_draft
    backend: BackendName | None = None
    repack: Flag = _DEFAULT.repack
    op_offload: Flag = _DEFAULT.op_offload
    mmproj: Bytes | None = None
    cache_ram: AllMebibytes = _DEFAULT.cache_ram
    ctx_checkpoints: Natural = _DEFAULT.ctx_checkpoints


NAMES = frozenset(EstimateGiven.model_fields)
"""Options by llama-server's names, as fields of EstimateOptions."""


def estimated(spec: ModelSpec, options: EstimateOptions) -> MemoryEstimate:
    """Return the estimate. Raise EstimateRefused where the engine would refuse these options."""
    found = estimate(spec, options)
    if isinstance(found, Refusal):
        raise file_refused(found.code, found.message) or EstimateRefused(found.code, found.message)
    return found


def estimates_json(
    spec: ModelSpec, given: Mapping[str, object], backend: str = ""
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the object of `estimate --json` for options by name; a list where `ctx_size` is one.

    `backend`: of this machine, as in `estimate_options`.

    Raises EstimateRefused, and as `estimate_options`.
    """
    contexts = given.get("ctx_size")
    asked = contexts if isinstance(contexts, list) else [contexts]
    if not 0 < len(asked) <= _MOST_CONTEXTS:
        raise InvalidRequest(f"ctx_size: name 1 to {_MOST_CONTEXTS} contexts.", param="ctx_size")
    options = [estimate_options({**given, "ctx_size": context}, backend) for context in asked]
    found = [estimated(spec, one).to_json() for one in options]
    return found if isinstance(contexts, list) else found[0]


def estimate_options(given: Mapping[str, object], backend: str = "") -> EstimateOptions:
    """Return options by llama-server's names with underscores; `mmproj` names a file.

    `backend`: of this machine, which counts where neither a back end is given nor the names of devices tell it.

    Raises InvalidRequest for an unknown one or a wrong value, ModelFileError for a projector that is none.
    """
    unknown = given.keys() - NAMES
    if unknown:
        name = min(unknown)
        raise InvalidRequest(f"There is no option '{name}'. Known: {', '.join(sorted(NAMES))}.", param=name)
    values = dict(given)
    if values.get("mmproj"):
        values["mmproj"] = _projector_bytes(values["mmproj"])
    split = values.get("tensor_split")
    if isinstance(split, (list, tuple)) and "devices" not in values:
        values["devices"] = tuple(f"GPU{number}" for number in range(len(split)))
    try:
        found = EstimateGiven.model_validate(values)
        chosen = found.backend or ",".join(sorted({backend_of(name) for name in found.devices} - {"gpu"})) or backend
        return EstimateOptions(**{**found.model_dump(exclude_unset=True), "backend": chosen})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise InvalidRequest(f"{name} cannot be {str(given.get(name))[:100]!r}: {first['msg']}.", param=name) from None


def _projector_bytes(path: object) -> int:
    """Return the bytes of the tensors in a projector's file."""
    return tensor_bytes(open_model(Path(str(path))).header.tensors)
