"""How long does a plan take?

    python -m benchmarks.plan [--rounds 7] [--json FILE]

The model is a mixture of experts of 94 layers and 1,131 tensors, as large as Qwen3-235B in 8 bits; the machine has 8
devices of 141 GiB with 20 engines on them. Timed are plans that fit beside these engines, that fit once some of them
have left, that put experts on the host, and that do not fit at all, which includes the search for what would help. Then
500 models of 16 to 94 layers are planned on that machine. *Cold* is the first plan of a model, which sorts its tensors.
Seconds are those of the processor: the median over rounds, for the catalogue the least disturbed of three passes.
Beside each stands its goal (10 ms a plan that fits, 1 s the catalogue, cold or not); the last line says whether all are
met, and so does the exit status.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from supervisor.core.gguf import GgufHeader, TensorInfo
from supervisor.core.plan import Budget, Budgets, DoesNotFit, Placement, PlanRequest, Policy, Resident, plan
from supervisor.core.spec import ModelSpec, read_spec

_GIB = 1 << 30
_Q8_0 = 8
_F32 = 0
_MOST_SECONDS = 0.010
_MOST_CATALOGUE_SECONDS = 1.0
_MODELS = 500
_PASSES = 3
_POLICY = Policy(kv_types=("f16", "q8_0"))


def model(layers: int, embedding: int, experts: int, context: int = 262_144) -> ModelSpec:
    """A mixture of experts by its dimensions; dense without experts."""
    heads = embedding // 64
    metadata = {
        "general.architecture": "qwen3moe" if experts else "qwen3",
        "block_count": layers,
        "context_length": context,
        "embedding_length": embedding,
        "feed_forward_length": 3 * embedding,
        "attention.head_count": heads,
        "attention.head_count_kv": 4,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "vocab_size": 151_936,
    }
    if experts:
        metadata |= {"expert_count": experts, "expert_used_count": 8, "expert_feed_forward_length": 1536}
    name = metadata["general.architecture"]
    keys = {
        key if "." in key and key.startswith("general") else f"{name}.{key}": value for key, value in metadata.items()
    }
    return read_spec(
        GgufHeader(
            3, "little", keys, tuple(_tensors(layers, embedding, experts)), data_offset=0, alignment=32, file_size=None
        )
    )


def _tensors(layers: int, embedding: int, experts: int) -> list[TensorInfo]:
    queries = embedding // 64 * 128
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (embedding,),
        "attn_q": (embedding, queries),
        "attn_k": (embedding, 512),
        "attn_v": (embedding, 512),
        "attn_output": (queries, embedding),
        "attn_q_norm": (128,),
        "attn_k_norm": (128,),
        "ffn_norm": (embedding,),
    }
    if experts:
        shapes["ffn_gate_inp"] = (embedding, experts)
        shapes |= {f"ffn_{part}_exps": (embedding, 1536, experts) for part in ("gate", "up")}
        shapes["ffn_down_exps"] = (1536, embedding, experts)
    else:
        shapes |= {f"ffn_{part}": (embedding, 3 * embedding) for part in ("gate", "up")}
        shapes["ffn_down"] = (3 * embedding, embedding)
    outside = {"token_embd": (embedding, 151_936), "output": (embedding, 151_936), "output_norm": (embedding,)}
    named = outside | {f"blk.{layer}.{name}": shape for layer in range(layers) for name, shape in shapes.items()}
    return [
        TensorInfo(f"{name}.weight", shape, _Q8_0 if len(shape) > 1 else _F32, offset=0)
        for name, shape in named.items()
    ]


def machine(devices: int, gib: int, host_gib: int) -> Budgets:
    return Budgets(
        tuple(Budget(f"CUDA{number}", "cuda", gib * _GIB, gib * _GIB, _GIB // 2) for number in range(devices)),
        Budget("CPU", "cpu", host_gib * _GIB, host_gib * _GIB, _GIB // 4),
    )


def engines(count: int, gib: int, devices: int = 8) -> list[Resident]:
    """Of different sizes and ages, dealt out over the devices."""
    return [
        Resident(
            engine=number + 1,
            model=f"model-{number + 1}",
            used_bytes={f"CUDA{number % devices}": (gib + number % 5) * _GIB, "CPU": _GIB},
            evictable=number % 7 != 6,
            reload_seconds=5.0 + number % 4,
            idle_seconds=60.0 * (number % 9),
            priority=number % 2,
        )
        for number in range(count)
    ]


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def situations() -> dict[str, tuple[type, Budgets, list[Resident]]]:
    return {
        "beside_20_engines": (Placement, machine(8, 141, 1024), engines(20, 20)),
        "after_evictions": (Placement, machine(8, 141, 1024), engines(20, 50)),
        "experts_on_the_host": (Placement, machine(2, 80, 1024), engines(20, 4, 2)),
        "does_not_fit": (DoesNotFit, machine(8, 24, 64), engines(20, 4)),
    }


def measure(rounds: int) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, (kind, budgets, residents) in situations().items():
        cold, warm = [], []
        for turn in range(rounds):
            request = PlanRequest("large", model(94, 4096, 128, 262_144 - 256 * turn))
            ask = partial(plan, request, budgets, residents, _POLICY)
            cold.append(seconds(ask))
            warm.append(seconds(ask))
            found = ask()
            assert isinstance(found, kind), found
        row[f"cold_{name}_seconds"] = statistics.median(cold)
        row[f"{name}_seconds"] = statistics.median(warm)
        if isinstance(found, Placement):
            row[f"{name}_evicted"] = len(found.evict)
    return row | catalogue()


def catalogue() -> dict[str, float]:
    """Seconds to plan every model of it on its own, for the first and for the second time."""
    budgets, residents = machine(8, 141, 1024), engines(20, 20)
    passes = []
    for turn in range(_PASSES):
        cold, warm = 0.0, 0.0
        for number in range(_MODELS):
            spec = model(16 + number % 79, 2048 + 128 * (number % 17), 64 * (number % 3), 262_144 - 256 * turn)
            ask = partial(plan, PlanRequest("one", spec), budgets, residents, _POLICY)
            cold += seconds(ask)
            warm += seconds(ask)
        passes.append((cold, warm))
    cold, warm = min(passes)
    return {"cold_catalogue_seconds": cold, "catalogue_seconds": warm}


def goal_of(name: str) -> float | None:
    """The most seconds that a figure may be; None: it has no goal."""
    what = name.removeprefix("cold_").removesuffix("_seconds")
    if what == "catalogue":
        return _MOST_CATALOGUE_SECONDS
    fits = name.endswith("_seconds") and situations()[what][0] is Placement
    return _MOST_SECONDS if fits else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    row = measure(options.rounds)
    goals = {name: goal for name in row if (goal := goal_of(name)) is not None}
    print("| what | | goal |\n|---|---|---|")
    for name, value in row.items():
        shown = f"{value * 1000:.1f} ms" if name.endswith("_seconds") else f"{value:.0f}"
        most = f"{goals[name] * 1000:.0f} ms" if name in goals else ""
        print(f"| {name.removesuffix('_seconds').replace('_', ' ')} | {shown} | {most} |")
    met = all(row[name] <= goal for name, goal in goals.items())
    print(f"goal {'met' if met else 'missed'}")
    if options.json:
        options.json.write_text(json.dumps({**row, "met": met}, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
