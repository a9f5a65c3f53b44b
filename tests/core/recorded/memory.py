"""Estimates and plans of every architecture and model on record: `python -m tests.core.recorded.memory` keeps them.

The evidence says how exact an estimate is; this says only whether it changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from supervisor.core.memory import (
    EstimateOptions,
    Refusal,
    Shape,
    context_demand,
    demand,
    estimate,
    refuse,
    weight_table,
)
from supervisor.core.plan import Budgets, Explicit, PlanRequest, Policy, Resident, plan
from supervisor.core.spec import ModelSpec
from tests.core.memory.support import spec_of
from tests.core.plan.support import machine
from tests.core.recorded.bodies import plainly
from tests.evidence import known_models
from tests.evidence.subjects import TINY, kind_of, recorded_subjects
from tests.support.recorded import write

FOLDER: Final = Path(__file__).parent / "data"
_THREE: Final = ("A", "B", "C")
WAYS: Final[tuple[EstimateOptions, ...]] = (
    EstimateOptions(),
    EstimateOptions(ctx_size=8192, devices=()),
    EstimateOptions(ctx_size=32768, devices=_THREE, cache_type_k="q8_0", cache_type_v="q8_0", backend="cuda"),
    EstimateOptions(ctx_size=4096, parallel=3, devices=_THREE[:2], n_gpu_layers=3, backend="vulkan"),
    EstimateOptions(ctx_size=4096, parallel=2, kv_unified=True, flash_attn="off", swa_full=True, tensor_split=(3, 1),
                    devices=_THREE[:2], n_cpu_moe=2, backend="metal"),
    EstimateOptions(ctx_size=2048, embeddings=True, batch_size=4096, ubatch_size=1024, offload_kv=False, mmproj=5000),
    EstimateOptions(ctx_size=2048, speculative="draft-mtp", draft_n_max=5, cpu_moe=True, repack=False,
                    op_offload=False, cache_ram=0, ctx_checkpoints=3, cache_type_k_draft="q8_0"),
    EstimateOptions(ctx_size=512, ubatch_size=64, devices=("A",), backend="rpc,cuda", cache_type_v="f32"),
)  # fmt: skip
MACHINES: Final[tuple[Budgets, ...]] = (
    machine(24, host=64),
    machine(8, 12, host=32),
    machine(6, 6, 6, 6, host=16, backend="vulkan"),
    machine(40, host=40, backend="metal", shares_host=True),
    machine(host=12),
    machine(0.2, host=0.3),
)
_ASKED: Final[tuple[tuple[Explicit, Policy], ...]] = (
    (Explicit(), Policy()),
    (Explicit(ctx_size=4096), Policy()),
    (Explicit(), Policy(kv_types=("f16", "q8_0"), context_target=65536, context_min=8192, overcommit="mmap")),
    (Explicit(n_gpu_layers=5), Policy(cpu_moe=False, partial_offload=False)),
)
_RESIDENTS: Final = (
    Resident(1, "old", {"CUDA0": 4 << 30, "CPU": 1 << 30}, evictable=True, idle_seconds=60.4),
    Resident(2, "busy", {"CUDA0": 2 << 30, "Vulkan1": 1 << 30, "CPU": 1 << 29}),
)


def specs() -> Iterator[tuple[str, ModelSpec]]:
    """Every model on record: each architecture by a tiny one, and the large ones."""
    for name in recorded_subjects():
        yield name, spec_of(name)


def _demanded(spec: ModelSpec, options: EstimateOptions) -> object:
    if refuse(spec, options) is not None:
        return None
    shape: Shape = "solo" if len(options.devices) == 1 else "pipeline" if options.devices else "host"
    return plainly(demand(weight_table(spec, options), context_demand(spec, options, shape), options))


def estimates() -> dict[str, list[Any]]:
    """What is said of every model, of tiny ones in every other way."""
    found: dict[str, list[Any]] = {}
    for number, (name, spec) in enumerate(specs()):
        ways = WAYS[number % 2 :: 2] if kind_of(name) == TINY else WAYS
        said = [estimate(spec, options) for options in ways]
        estimated = [plainly(one) if isinstance(one, Refusal) else one.to_json() for one in said]
        found[name] = [estimated, [_demanded(spec, options) for options in ways]]
    return found


def plans() -> dict[str, list[Any]]:
    """Where large models go, on some of the machines each."""
    found: dict[str, list[Any]] = {}
    for turn, name in enumerate(known_models.BY_NAME):
        for number, (explicit, policy) in enumerate(_ASKED):
            request = PlanRequest(name, spec_of(name), EstimateOptions(), explicit)
            if number == 1:
                request = replace(request, projector_bytes=1 << 30, draft=spec_of("llama-3.1-8b"))
            where = [
                plan(request, one, _RESIDENTS if number % 2 else (), policy)
                for one in MACHINES[(turn + number) % 3 :: 3]
            ]
            found[f"{name} {number}"] = [one.to_json() for one in where]
    return found


if __name__ == "__main__":
    write(FOLDER / "estimates.json", estimates())
    write(FOLDER / "plans.json", plans())
