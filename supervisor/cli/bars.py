"""An estimate as a person reads it: a table with bars, and what other choices would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from supervisor.cli.render import bold, dim, print_table, size
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.mlx.describe import notes
from supervisor.core.mlx.facts import MlxFacts
from supervisor.core.mlx.memory import MlxSettings
from supervisor.core.mlx.memory import estimate as estimate_mlx
from supervisor.core.spec import ModelSpec

_BAR = 30
_CONTEXTS = (4096, 32768)


def print_estimate(spec: ModelSpec, found: MemoryEstimate, options: EstimateOptions) -> None:
    """Print the parts with bars, the layers by kind, other contexts, and what q8_0 caches would save."""
    how = "share" if found.n_ctx == found.n_ctx_seq else "of"
    slots = f"{found.n_seq} slots {how} {found.n_ctx_seq} tokens" if found.n_seq > 1 else f"{found.n_ctx_seq} tokens"
    print(f"{bold(spec.name or found.arch)}  {found.arch}, context {found.n_ctx}: {slots}")
    print_table(("PART", "SIZE", "", ""), _part_rows(found))
    kinds = _kind_rows(found)
    if len(kinds) > 1:
        print()
        print_table(("LAYERS", "KIND", "WEIGHTS", "CACHE", "STATE"), kinds)
    if len(found.devices) > 1:
        print()
        print_table(("DEVICE", "WEIGHTS", "CACHE", "STATE", "COMPUTE"), _device_rows(options, found))
    print()
    print_table(("CONTEXT", "CACHE", "TOTAL", "CACHE AS q8_0", "TOTAL"), _context_rows(spec, options, found))
    for growth in found.host_growth:
        print(dim(f"host memory that grows while serving: {growth.name}, up to {size(growth.max_bytes)}"))
    for remark in found.notes:
        print(dim(f"note: {remark}"))


def print_mlx_estimate(facts: MlxFacts, settings: Sequence[MlxSettings]) -> None:
    """Print the parts of a model for MLX, once for each context."""
    for number, one in enumerate(settings):
        if number:
            print()
        found = estimate_mlx(facts, one)
        print(f"{bold(facts.model_type)}  MLX, {one.sequences} × {one.context} tokens")
        parts = (
            *(("weights", found.weights), ("cache and states", found.cache), ("prompt cache", found.prompt_cache)),
            *(("compute", found.compute), ("process", found.base)),
        )
        rows = [(name, size(count), *_share(count, found.total)) for name, count in parts if count]
        print_table(("PART", "SIZE", "", ""), [*rows, ("total", size(found.total), "", "")])
    for remark in notes(facts):
        print(dim(f"note: {remark}"))


def _share(count: int, total: int) -> tuple[str, str]:
    return f"{100 * count / total:.1f} %", _bar(count / total)


def _part_rows(found: MemoryEstimate) -> list[tuple[str, str, str, str]]:
    parts = [
        ("weights", found.weights_bytes),
        ("cache", found.kv_bytes),
        ("recurrent state", found.recurrent_bytes),
        ("compute", found.compute_bytes),
        ("compute on the host", found.host_compute_bytes),
        ("output", found.output_bytes),
        ("projector", found.projector_bytes),
    ]
    shown = [(name, count) for name, count in parts if count]
    total = found.total_bytes or 1
    rows = [(name, size(count), f"{100 * count / total:.1f} %", _bar(count / total)) for name, count in shown]
    return [*rows, ("total", size(found.total_bytes), "", "")]


def _bar(share: float) -> str:
    return "█" * round(share * _BAR) or "▏"


def _kind_rows(found: MemoryEstimate) -> list[tuple[str, str, str, str, str]]:
    counts = Counter(layer.kind for layer in found.layers)
    rows = []
    for kind, number in counts.items():
        layers = [layer for layer in found.layers if layer.kind == kind]
        sums = (
            sum(layer.weights_bytes for layer in layers),
            sum(layer.kv_bytes for layer in layers),
            sum(layer.recurrent_bytes for layer in layers),
        )
        rows.append((str(number), kind, *(size(count) for count in sums)))
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def _device_rows(options: EstimateOptions, found: MemoryEstimate) -> list[tuple[str, str, str, str, str]]:
    """List the devices that hold something.

    The device that is assumed where none is named gets no name of this machine.
    """
    default = EstimateOptions().devices
    assumed = default if options.devices == default else ()
    return [
        (
            "one GPU (assumed)" if device.name in assumed else device.name,
            size(device.weights_bytes),
            size(device.kv_bytes),
            size(device.recurrent_bytes),
            size(device.compute_bytes),
        )
        for device in found.devices
        if device.total_bytes
    ]


def _context_rows(
    spec: ModelSpec, options: EstimateOptions, found: MemoryEstimate
) -> list[tuple[str, str, str, str, str]]:
    contexts = sorted({*_CONTEXTS, found.n_ctx, spec.n_ctx_train} - {0})
    rows = []
    for context in contexts:
        plain = estimate(spec, replace(options, ctx_size=context))
        small = estimate(spec, replace(options, ctx_size=context, cache_type_k="q8_0", cache_type_v="q8_0"))
        rows.append((f"{context}", *_cache_and_total(plain), *_cache_and_total(small)))
    return rows


def _cache_and_total(found: object) -> tuple[str, str]:
    if isinstance(found, MemoryEstimate):
        return size(found.kv_bytes), size(found.total_bytes)
    return "-", "-"  # the engine would refuse it
