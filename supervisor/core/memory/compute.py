"""Compute buffers: what each device, and the host, reserves for one micro-batch.

Every buffer holds the masks and a few rows of the residual stream; a device that computes layers holds the widest
place of the graph too. How many rows of the stream depends on how the graph is cut between devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.graph import core_bytes, mask_bytes
from supervisor.core.memory.options import EstimateOptions

_MARGIN_BYTES = 104858  # 0.1 MiB: small inputs, padding between tensors
_MARGIN_PARTS = 5000  # and 0.02 %
_F16_BYTES = 2
_EXPERT_COPIES = 2


@dataclass(frozen=True, slots=True)
class Cut:
    """How a graph is cut: copies of the inputs, rows of the residual stream per place."""

    copies: int
    first: int
    others: int
    host: int
    host_computes: bool


_ON_HOST = Cut(copies=1, first=0, others=0, host=5, host_computes=True)
_ON_ONE_DEVICE = Cut(copies=1, first=4, others=4, host=4, host_computes=False)
_MIXED = Cut(copies=1, first=6, others=6, host=5, host_computes=True)
_PIPELINE = Cut(copies=4, first=17, others=12, host=10, host_computes=False)


def compute_buffers(
    facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache], places: Sequence[int]
) -> list[int]:
    """Bytes per device, the host last."""
    core = core_bytes(facts.spec, facts.widths, context, caches)
    masks = mask_bytes(facts.spec, context, caches)
    stream = 4 * context.n_tokens * facts.widths.embd
    cut = _cut(options, places)
    inputs = cut.copies * masks
    used = sorted({place for place in places if place >= 0})
    found = [0] * (len(options.devices) + 1)
    for device in used:
        rows = cut.first if device == used[0] else cut.others
        found[device] = _with_margin(core + inputs + rows * stream + _cuda_copies(options, context, caches))
    found[-1] = _with_margin((core if cut.host_computes else 0) + inputs + cut.host * stream)
    return found


def _cut(options: EstimateOptions, places: Sequence[int]) -> Cut:
    used = {place for place in places if place >= 0}
    if not used:
        return _ON_HOST
    overridden = options.cpu_moe or options.n_cpu_moe > 0 or bool(options.override_tensors)
    if min(places) < 0 or overridden or not options.offload_kv:
        return _MIXED
    return _ON_ONE_DEVICE if len(options.devices) == 1 else _PIPELINE


def _with_margin(size: int) -> int:
    return size + _MARGIN_BYTES + size // _MARGIN_PARTS


def _cuda_copies(options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> int:
    """CUDA's flash attention reads F16: of other caches it keeps a copy of the largest layer."""
    if not options.cuda or not context.flash_attn:
        return 0
    return max((_copy(cache) for cache in caches if cache.name != "index"), default=0)


def _copy(cache: Cache) -> int:
    keys = 0 if cache.type_k == "f16" else max(row.k_width for row in cache.layers)
    values = 0 if cache.type_v == "f16" else max(row.v_width for row in cache.layers)
    return _F16_BYTES * cache.cells * cache.streams * (keys + values)


def offloaded_experts(options: EstimateOptions, largest: int) -> int:
    """What CUDA's first device holds beside its buffer to compute large batches with the host's experts."""
    return _EXPERT_COPIES * largest if options.cuda and options.op_offload and options.devices else 0
