"""How long does an estimate take, once a model's header is read?

    python -m benchmarks.estimate [--calls 10000] [--json FILE]

The model is a mixture of experts of 94 layers and 1,131 tensors. Timed are: the first estimate, which sorts the
tensors; then many, each with other options; the largest context for a budget, which takes about ten estimates; and
the whole way from the file, beside what gguf's GGUFReader takes for its header alone, in turn. The last line says
whether the goals (10,000 calls in 5 s; a first call within 1 ms, the least disturbed of the rounds) are met; so does
the exit status.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np

from supervisor.core.gguf import read_header
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate, max_context
from supervisor.core.spec import ModelSpec, read_spec

_LAYERS = 94
_EXPERTS = 128
_EMBEDDING = 4096
_VOCABULARY = 151_936
_MOST_SECONDS = 5.0 / 10_000
_MOST_FIRST_SECONDS = 0.001
_ROUNDS = 5

_SHAPES = {
    "attn_norm": (4096,),
    "attn_q": (4096, 8192),
    "attn_k": (4096, 512),
    "attn_v": (4096, 512),
    "attn_output": (8192, 4096),
    "attn_q_norm": (128,),
    "attn_k_norm": (128,),
    "ffn_norm": (4096,),
    "ffn_gate_inp": (4096, 128),
    "ffn_gate_exps": (4096, 1536, 128),
    "ffn_up_exps": (4096, 1536, 128),
    "ffn_down_exps": (1536, 4096, 128),
}


def write_model(path: Path) -> None:
    """The header of a large mixture of experts; its tensors' data is a hole."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(262_144)
    writer.add_embedding_length(_EMBEDDING)
    writer.add_feed_forward_length(12_288)
    writer.add_head_count(64)
    writer.add_head_count_kv(4)
    writer.add_key_length(128)
    writer.add_value_length(128)
    writer.add_expert_count(_EXPERTS)
    writer.add_expert_used_count(8)
    writer.add_expert_feed_forward_length(1536)
    writer.add_token_list([f"token {number}" for number in range(_VOCABULARY)])
    size = 0
    for name, shape in _tensors():
        n_bytes = 2 * int(np.prod(shape, dtype=np.int64))
        writer.add_tensor_info(name, shape[::-1], np.dtype(np.float16), n_bytes)
        size += -(-n_bytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as stream:
        stream.truncate(-(-stream.seek(0, 2) // 32) * 32 + size)


def _tensors() -> list[tuple[str, tuple[int, ...]]]:
    whole = (_EMBEDDING, _VOCABULARY)
    found: list[tuple[str, tuple[int, ...]]] = [("token_embd.weight", whole), ("output.weight", whole)]
    found.append(("output_norm.weight", (_EMBEDDING,)))
    found += [(f"blk.{layer}.{name}.weight", shape) for layer in range(_LAYERS) for name, shape in _SHAPES.items()]
    return found


def read(path: Path) -> ModelSpec:
    with path.open("rb") as stream:
        return read_spec(read_header(stream, path.stat().st_size))


def options_of(number: int) -> EstimateOptions:
    """Every call has others, as a planner's would."""
    return EstimateOptions(
        ctx_size=4096 + 256 * (number % 1000),
        parallel=1 + number % 8,
        ubatch_size=256 << number % 4,
        cache_type_k=("f16", "q8_0")[number % 2],
        cache_type_v=("f16", "q8_0")[number % 2],
        n_gpu_layers=None if number % 3 else number % (_LAYERS + 2),
        n_cpu_moe=number % 5 * 10,
        devices=("GPU0", "GPU1")[: 1 + number % 2],
    )


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure(path: Path, calls: int) -> dict[str, float]:
    reads, whole, first, theirs = [], [], [], []
    for _ in range(_ROUNDS):
        theirs.append(seconds(lambda: gguf.GGUFReader(path)))
        begun = time.perf_counter()
        spec = read(path)
        reads.append(time.perf_counter() - begun)
        first.append(seconds(lambda spec=spec: estimate(spec, EstimateOptions())))  # type: ignore[misc] # a default's type
        whole.append(reads[-1] + first[-1])
    ways = [options_of(number) for number in range(calls)]
    many = seconds(lambda: [estimate(spec, options) for options in ways])
    inverse = seconds(lambda: max_context(spec, EstimateOptions(), 600 << 30))
    found = estimate(spec, EstimateOptions())
    assert isinstance(found, MemoryEstimate)
    return {
        "read_and_estimate_seconds": statistics.median(whole),
        "gguf_reader_seconds": statistics.median(theirs),
        "first_estimate_seconds": min(first),
        "seconds_per_estimate": many / calls,
        "max_context_seconds": inverse,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path)
        row = measure(path, options.calls)
    print("| what | ms |\n|---|---|")
    for name, value in row.items():
        print(f"| {name.replace('_seconds', '').replace('seconds_', '').replace('_', ' ')} | {value * 1000:.3f} |")
    faster = row["gguf_reader_seconds"] / row["read_and_estimate_seconds"]
    met = row["seconds_per_estimate"] <= _MOST_SECONDS and row["first_estimate_seconds"] <= _MOST_FIRST_SECONDS
    print(f"{faster:.0f} times faster from the file to the estimate than gguf's reader to the header")
    print(f"goal {'met' if met else 'missed'}")
    if options.json:
        options.json.write_text(json.dumps({**row, "times_faster": faster, "met": met}, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
