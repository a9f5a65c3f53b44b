"""Traits of ggml's back ends that change what llama-server allocates: one record for each.

Names of files are llama.cpp b11434's, below `ggml/src`. What was measured on devices and what was only read there is in
docs/memory.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal


def _trait(default: object, joined: Callable[[Iterable[Any]], object]) -> Any:
    """Return a field; `joined`: what several back ends that share a model have, of their values that are not None."""
    return field(default=default, metadata={"joined": joined})


def _common(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    return frozenset.intersection(*sets)


@dataclass(frozen=True, slots=True)
class Backend:
    """A back end, or several whose devices share a model.

    Attributes:
        name: as in `core.devices`: cuda, vulkan, metal, …; several joined by commas.
        pads_weights: weights are padded to 128 bytes, their quantised rows to 512 elements (`get_alloc_size`).
        offloads: large batches are computed on the first device with weights that stay on the host (`offload_op`).
        reorders: nodes of a graph are computed in another order, so that more of them are alive (`graph_optimize`).
        chunk: bytes of one buffer: more is allocated in several, between which no tensor lies (`get_max_size`).
        largest: bytes of a tensor that it computes with; larger ones, weights too, stay on the host (`supports_op`).
        copies: cache types that flash attention reads as they are; others it copies to F16 (`get_alloc_size`). None:
            it copies nothing.
        pads_attention: flash attention has room for partial results beside what it puts out (`get_alloc_size`).
        scans: states of a head of Mamba that it computes; None: all.
        older_scans: it computes Mamba's older kind.
        streams: it multiplies a matrix with one for each slot, as latent attention does.
        mixes: residual streams that it mixes in one node (`DSV4_HC_PRE`); None: any number.
        index_head: the head of an indexer that it computes; None: any.
        precise_experts: it computes experts in F32 where a graph wants that.
        experts_apart: what experts put out stays beside the same weighted (`graph_optimize`).
    """

    name: str
    pads_weights: bool = _trait(False, any)
    offloads: bool = _trait(False, any)
    reorders: bool = _trait(False, any)
    chunk: int | None = _trait(None, min)
    largest: int | None = _trait(None, min)
    copies: frozenset[str] | None = _trait(None, _common)
    pads_attention: bool = _trait(False, any)
    scans: frozenset[int] | None = _trait(None, _common)
    older_scans: bool = _trait(True, all)
    streams: bool = _trait(True, all)
    mixes: int | None = _trait(None, min)
    index_head: int | None = _trait(None, min)
    precise_experts: bool = _trait(True, all)
    experts_apart: bool = _trait(False, any)


_GIB = 1 << 30
_F16 = frozenset({"f16"})

PLAIN = Backend("")
"""Devices of which nothing is known, and RPC workers on a CPU: they compute everything, in the graph's order."""

# ggml-cuda/ggml-cuda.cu: alignment :897, rows :903, fattn.cu:722 the copies, offload_op :5754, graph_optimize :4604
_CUDA = Backend("cuda", pads_weights=True, offloads=True, copies=_F16, experts_apart=True)

_KNOWN = {
    "cuda": _CUDA,
    "hip": _CUDA,
    "musa": _CUDA,
    # ggml-vulkan/ggml-vulkan.cpp: get_max_size :13061, graph_optimize :14687, supports_op :15324, offload_op :15997
    "vulkan": Backend(
        "vulkan",
        offloads=True,
        reorders=True,
        chunk=_GIB,
        largest=4 * _GIB - 1,
        scans=frozenset({128, 256}),
        older_scans=False,
        streams=False,
        mixes=4,
        index_head=128,
        precise_experts=False,
    ),
    # ggml-metal/ggml-metal.cpp: get_alloc_size :220, offload_op :780; ggml-metal-common.cpp: graph_optimize :537
    "metal": Backend("metal", offloads=True, reorders=True, copies=frozenset(), pads_attention=True),
}
BackendName = Literal["cpu", "cuda", "hip", "metal", "musa", "rpc", "vulkan"]
"""Back ends that an estimate may be asked for; what else a plan meets is as `rpc`."""


@cache
def backend(name: str) -> Backend:
    """Return the traits of a back end, or of several joined by commas: then whatever takes more."""
    found = [_KNOWN.get(part, PLAIN) for part in name.split(",")]
    return found[0] if len(found) == 1 else _joined(name, found)


def _joined(name: str, parts: Sequence[Backend]) -> Backend:
    found: dict[str, Any] = {}
    for trait in fields(Backend)[1:]:
        known = [value for part in parts if (value := getattr(part, trait.name)) is not None]
        found[trait.name] = trait.metadata["joined"](known) if known else None
    return Backend(name, **found)
