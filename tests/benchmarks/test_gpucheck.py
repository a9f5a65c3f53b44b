"""bin/gpu-check: the models that it writes, its arithmetic, and a run on Vulkan's software driver."""

from __future__ import annotations

import argparse
import io
import signal
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from benchmarks.gpucheck.__main__ import models_of
from benchmarks.gpucheck.account import MIB, Load, Row, compare, engine_account, placed, report
from benchmarks.gpucheck.drive import greedy_engine
from benchmarks.gpucheck.models import FAMILIES, GIB, TYPES, model_of, tensors_of, write_model
from supervisor.core.gguf import read_header
from supervisor.core.spec import read_spec
from tests.benchmarks.running import run_benchmark
from tests.support.vulkan import VulkanEngine

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gib", [0.03, 0.5, 1, 4, 16, 60])
def test_a_model_has_the_size_that_was_asked_for(family: str, gib: float) -> None:
    model = model_of(family, gib)
    assert abs(model.n_bytes - gib * GIB) <= model.shape.layer_bytes(model.kind) / 2 + 1


def test_large_models_have_the_shapes_of_real_ones() -> None:
    assert model_of("llama", 8).shape.embedding == 4096
    assert model_of("llama", 8).layers in range(28, 38)
    assert model_of("qwen3moe", 32).shape.experts == 128
    assert model_of("qwen3moe", 32).layers in range(46, 56)  # of Qwen3 30B-A3B: 48


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_is_a_model(tmp_path: Path, family: str, kind: str) -> None:
    model = model_of(family, 0.02, TYPES[kind])
    path = tmp_path / "m.gguf"
    fractions: list[float] = []
    write_model(path, model, fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1)
    spec = read_spec(read_header(io.BytesIO(path.read_bytes())))
    assert (spec.architecture.name, spec.n_layer_all) == (family, model.layers)
    reader = gguf.GGUFReader(path)
    assert [(tensor.name, int(tensor.n_bytes)) for tensor in reader.tensors] == [
        (name, _size(dimensions, kind)) for name, dimensions, kind in tensors_of(model)
    ]
    last = reader.tensors[-1]
    assert path.stat().st_size == last.data_offset + last.n_bytes
    rows = gguf.dequantize(last.data, last.tensor_type)
    assert 0 < abs(rows).max() < 1
    assert abs(rows.mean()) < abs(rows).max() / 100
    assert (rows[0] != rows[1]).any()


def _size(dimensions: tuple[int, ...], kind: int) -> int:
    elements = 1
    for dimension in dimensions:
        elements *= dimension
    return {8: elements // 32 * 34, 1: 2 * elements, 0: 4 * elements}[kind]


def test_the_models_of_the_command_line() -> None:
    assert models_of("llama:1,qwen3moe:0.5") == (("llama", 1.0), ("qwen3moe", 0.5))
    for wrong in ("llama", "falcon:1", "llama:x", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            models_of(wrong)


PLAN = {
    "n_cpu_moe": 2,
    "parts": [
        {"name": "CUDA3", "layers": 9, "total_bytes": 9 * MIB, "weights_bytes": 8 * MIB, "kv_bytes": MIB},
        {"name": "CPU", "layers": 0, "total_bytes": MIB, "weights_bytes": MIB},
    ],
}
LOG = [
    "load_tensors:        CUDA0 model buffer size =     8.00 MiB",
    "load_tensors:   CPU_Mapped model buffer size =     1.00 MiB",
    "llama_kv_cache:      CUDA0 KV buffer size =     2.00 MiB",
    "sched_reserve:      CUDA0 compute buffer size =     3.00 MiB",
]


def test_the_accounts_side_by_side() -> None:
    """An engine that is shown one GPU alone calls it CUDA0, whichever it is."""
    found = engine_account(LOG, PLAN)
    assert found is not None
    assert compare(PLAN, found) == (
        Row("CUDA3", "weights", 8 * MIB, 8 * MIB),
        Row("CUDA3", "kv", MIB, 2 * MIB),
        Row("CUDA3", "compute", 0, 3 * MIB),
        Row("CPU", "weights", MIB, MIB),
    )
    assert Row("CUDA3", "kv", MIB, 2 * MIB).percent == -50
    assert Row("CUDA3", "kv", MIB, 0).percent is None
    assert Row("CPU", "output", 17984, round(0.02 * MIB)).percent == 0
    assert placed(PLAN) == "CUDA3: 9 layers, experts of 2 on the host"
    assert engine_account(["nothing"], PLAN) is None


def test_the_page() -> None:
    load = Load(
        "llama-1g", GIB, "CUDA0: 9 layers", 2.0, (Row("CUDA0", "kv", MIB, 2 * MIB),),
        {"CUDA0": 5 * MIB}, {"CUDA0": 6 * MIB}, 1234.5, 67.8,
    )  # fmt: skip
    lines = report("a machine", {"engine": "b1"}, [load], [("a scene", "it | went well")]).splitlines()
    assert lines[0] == "## a machine"
    assert "| llama-1g | 1.00 GiB | CUDA0: 9 layers | 2.0 s (512 MiB/s) | 1,234.5 tokens/s | 67.8 tokens/s |" in lines
    assert "| llama-1g | CUDA0 | kv | 1.00 | 2.00 | -50.0 % |" in lines
    assert "| llama-1g | CUDA0 | 2.00 | 5.00 | 6.00 |" in lines
    assert "| a scene | it / went well |" in lines


def test_an_engine_that_takes_more_than_it_is_told(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text('#!/bin/sh\necho "$@" $(ulimit -v)\n', encoding="utf-8")
    real.chmod(0o755)
    greedy = greedy_engine(real, tmp_path, Path("/m/one.gguf"), 4096, 1 << 30)

    def said(*argv: str) -> str:
        return subprocess.run([greedy, *argv], capture_output=True, text=True, check=True).stdout.strip()

    assert said("-m", "/m/one.gguf", "--ctx-size", "8") == "-m /m/one.gguf --ctx-size 8 --ctx-size 4096 1048576"
    assert said("-m", "/m/two.gguf", "--ctx-size", "8") == "-m /m/two.gguf --ctx-size 8 unlimited"
    assert said("--list-devices") == "--list-devices unlimited"


def test_it_can_be_cancelled(tmp_path: Path) -> None:
    """Before any engine is there: what it has written goes with it."""
    stuck = tmp_path / "llama-server"
    stuck.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
    stuck.chmod(0o755)
    command = [sys.executable, "-P", "-m", "benchmarks.gpucheck", "--engine", str(stuck), "--models", "llama:0.02"]
    made = tmp_path / "made"
    made.mkdir()
    process = subprocess.Popen([*command, "--folder", str(made)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "written in" in line:
            process.send_signal(signal.SIGTERM)
            break
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "cancelled" in said
    assert list(made.iterdir()) == []


def run(tmp_path: Path, *arguments: str, env: dict[str, str] | None = None) -> list[list[str]]:
    """The cells of every row that a check printed; it leaves nothing in its folder."""
    made = tmp_path / "made"
    made.mkdir()
    out = run_benchmark("gpucheck", *arguments, "--title", "here", "--folder", str(made), env=env)
    assert list(made.iterdir()) == []
    return [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("| ")]


@pytest.mark.gpu
@pytest.mark.full
def test_on_a_gpu_back_end(vulkan_engine: VulkanEngine, tmp_path: Path) -> None:
    """Real device buffers, and a real shortage of them: the engine that takes too much may have 3 GiB."""
    engine = ["--engine", str(vulkan_engine.path), "--backend", "vulkan"]
    sizes = ["--models", "llama:0.01", "--ctx", "256", "--tokens", "1", "--address-space", "3"]
    rows = run(tmp_path, *engine, *sizes, env=vulkan_engine.environment(1))
    parts = {tuple(row[1:3]): row[5] for row in rows if len(row) == 6}
    assert parts["Vulkan0", "weights"] == parts["Vulkan0", "kv"] == "+0.0 %"
    scenes = {row[0]: row[1] for row in rows if len(row) == 2}
    assert "neighbour: ready" in scenes["another program holds 60% of a device"]
    greedy = scenes["an engine that takes more than was planned"]
    assert "kept free on Vulkan0" in greedy
    assert "Afterwards the other model answered (4 tokens)" in greedy


@pytest.mark.engine
@pytest.mark.full
def test_a_small_run(engine_binary: Path, tmp_path: Path) -> None:
    """On the processor, in halves: no scene is left out but the one that needs a device."""
    engine = ["--engine", str(engine_binary), "--backend", "cpu"]
    sizes = ["--models", "llama:0.02,qwen3moe:0.02", "--type", "f16", "--ctx", "512", "--tokens", "4"]
    rows = run(tmp_path, *engine, *sizes)
    weights = [row for row in rows if row[1:3] == ["CPU", "weights"]]
    assert [row[0] for row in weights] == ["llama-0.02g", "qwen3moe-0.02g"]
    assert all(row[5] == "+0.0 %" for row in rows if row[1:3] == ["CPU", "kv"])
    scenes = {row[0]: row[1] for row in rows if len(row) == 2}
    assert "both answered" in scenes["two models side by side"]
    assert scenes["another program holds 60% of a device"] == "there is no device"
    greedy = scenes["an engine that takes more than was planned"]
    assert "Memory ran out" in greedy or "`out_of_memory`" in greedy
    assert "Afterwards the other model answered (4 tokens)" in greedy
