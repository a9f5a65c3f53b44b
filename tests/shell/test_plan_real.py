"""Plans of a real daemon against what real engines then log, on two RPC workers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import running_daemon, scratch_home
from tests.support.patience import PATIENCE
from tests.support.planning_bench import Bench, by_device
from tests.support.workers import rpc_worker

pytestmark = pytest.mark.engine

GIB = 1 << 30
MIB = 1 << 20
EXACT = ("weights_bytes", "kv_bytes", "recurrent_bytes")
ROUNDING = 0.005 * MIB + 1  # of one line of the log
BOTH = ("RPC0", "RPC1")
COMMON: dict[str, Any] = {"load_mode": "none", "parallel": 1}


@pytest.fixture(scope="module")
def bench(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("models")
    with (
        rpc_worker(engine_binary) as one,
        rpc_worker(engine_binary) as other,
        scratch_home() as home,
        running_daemon(home, engine_binary, {"devices": {"rpc": [one, other]}}) as daemon,
    ):
        yield Bench(daemon, engine_binary, folder)


@dataclass(frozen=True)
class Case:
    """A model and how it is started. `most`: planned / told compute bytes of a device at most, for a reason named."""

    subject: str
    options: Mapping[str, Any]
    most: float = 1.15


_SECOND = 1.45
"""Where masks are small: the engine's own fit pass projects four copies of the stream more for devices
after the first than a load then reserves, and the estimate keeps to it."""
_ATTENTION_FIRST = 1.35
"""What a device of a Mamba hybrid reserves depends on the layer it starts with; the estimate takes the worst."""
_PER_LAYER = 1.50
"""Copies of per-layer embeddings, fitted to real widths; in the fixture they are wider than all the rest."""
_SPLIT_HOST = 1.35
"""Where layers or experts stay on the host, every device is given the largest of its terms."""

CASES = {
    "plain": Case("llama/wide", {}),
    "small context": Case("llama/wide", {"ctx_size": 4096}, _SECOND),
    "window": Case("gemma3/wide", {"parallel": 2, "tensor_split": [5, 4]}),
    "window, other order": Case("gemma3/wide", {"device": ["RPC1", "RPC0"], "tensor_split": [1, 2], "swa_full": True}),
    "latent": Case("deepseek2+experts/wide", {}),
    "experts": Case("qwen3moe+experts/wide", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    "experts on the host": Case("qwen3moe+experts/wide", {"n_cpu_moe": 3}, _SPLIT_HOST),
    "sinks": Case("gpt-oss+experts/wide", {"parallel": 1}),
    "delta net": Case("qwen3next+experts/wide", {}),
    "mamba and attention": Case("granitehybrid/wide", {"tensor_split": [2, 7]}),
    "mamba, then attention": Case("granitehybrid/wide", {"tensor_split": [1, 2]}, _ATTENTION_FIRST),
    "jamba": Case("jamba/wide", {"tensor_split": [6, 3]}),
    "mamba": Case("mamba2/wide", {"parallel": 3, "tensor_split": [1, 1]}),
    "rwkv": Case("rwkv7/wide", {}),
    "some layers on the host": Case("qwen3/wide", {"n_gpu_layers": 6}, _SPLIT_HOST),
    "shared caches": Case("gemma3n/wide", {"tensor_split": [4, 5]}, _PER_LAYER),
    "lfm2": Case("lfm2/wide", {}, _SECOND),
    "falcon-h1": Case("falcon-h1/wide", {"tensor_split": [5, 4]}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_plan_is_what_the_engine_then_holds(bench: Bench, case: Case) -> None:
    model = bench.model(case.subject)
    even = {"tensor_split": [1, 1]}  # free memory decides otherwise, and other programs change it
    options = {**COMMON, "ctx_size": 16384, "device": BOTH, **even, **case.options}
    plan = bench.plan(model, **options)
    assert plan["fits"], plan
    parts = by_device(plan)
    found = bench.load(model, **options)
    for name, part in parts.items():
        told = found.on(name)
        for key in EXACT:
            assert abs(part[key] - getattr(told, key)) <= MIB, (name, key)
        assert told.compute_bytes - ROUNDING <= part["compute_bytes"] <= told.compute_bytes * case.most, name
    assert set(parts) == {*BOTH, "CPU"}


def test_what_was_learned_is_planned_next(bench: Bench) -> None:
    model = bench.model("qwen3/upstream")
    options = {**COMMON, "ctx_size": 2048, "device": BOTH, "tensor_split": [1, 1]}
    assert not bench.plan(model, **options)["learned"]
    found = bench.load(model, **options)
    again = bench.plan(model, **options)
    assert again["learned"]
    for name, part in by_device(again).items():
        assert abs(part["compute_bytes"] - found.on(name).compute_bytes) <= 1
    other = by_device(bench.plan(model, **{**options, "ctx_size": 8192, "device": ["RPC1", "RPC0"]}))
    told = bench.load(model, **{**options, "ctx_size": 8192, "device": ["RPC1", "RPC0"]})
    assert all(told.on(name).compute_bytes - ROUNDING <= part["compute_bytes"] for name, part in other.items())


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "one device": ("llama/upstream", {}),
    "chosen device": ("llama/upstream", {"device": ["RPC1"]}),
    "several devices": ("llama/upstream", {"device": BOTH}),
    "several devices, one used": ("llama/upstream", {"device": BOTH, "split_mode": "none", "main_gpu": 1}),
    "split": ("gemma3/wide", {"device": BOTH, "tensor_split": [3, 1], "swa_full": True}),
    "experts on the host": ("qwen3moe+experts/upstream", {"n_cpu_moe": 1}),
    "some layers on the host": ("llama/upstream", {"n_gpu_layers": 1}),
    "the host alone": ("llama/upstream", {"device": []}),
    "latent": ("deepseek2+experts/upstream", {"device": BOTH, "cache_type_k": "q8_0"}),
}


@pytest.mark.parametrize(("subject", "given"), SHAPES.values(), ids=SHAPES)
def test_what_a_plan_says_is_what_the_engine_reads(bench: Bench, subject: str, given: dict[str, Any]) -> None:
    model = bench.model(subject)
    plan = bench.plan(model, **{"parallel": 1, "ctx_size": 512, **given})
    assert plan["fits"], plan
    assert "-fit" in plan["arguments"] or "--fit" in plan["arguments"]
    assert _parse(bench, model, plan["arguments"]) == ""
    if given.get("device") != []:
        assert "invalid device" in _parse(bench, model, [*plan["arguments"], "--device", "RPC7"])


def _parse(bench: Bench, model: Path, arguments: list[str]) -> str:
    """What llama-server has against the arguments; it looks at all of them before it helps."""
    argv = [str(bench.binary), "-m", str(model), *arguments, "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return "" if done.returncode == 0 else done.stderr


def test_what_does_not_fit_says_how_much_is_missing(bench: Bench) -> None:
    model = bench.model("kimi-k2")  # a header and a hole
    options = {"device": BOTH, "n_gpu_layers": 62, "n_cpu_moe": 0, "parallel": 1}
    plan = bench.plan(model, **options)
    assert not plan["fits"]
    assert not plan["later"]
    short = {one["device"]: one for one in plan["shortages"]}
    assert set(short) & set(BOTH)
    for one in short.values():
        assert one["missing_bytes"] == max(0, one["needed_bytes"] - one["usable_bytes"])
    assert sum(one["needed_bytes"] for one in short.values()) > 400 * GIB
    refused = bench.daemon.http.post("/api/v1/models/load", json={"target": str(model), "options": options})
    assert refused.status_code == 507, refused.text
    assert "GiB" in refused.json()["error"]["message"]


def test_a_worker_serves_one_engine_at_a_time(bench: Bench) -> None:
    """Who wants a worker, however small it is, evicts who is there and nobody else."""
    models = [bench.model(f"{name}/upstream") for name in ("llama", "qwen3", "gemma3")]
    alone = {**COMMON, "ctx_size": 512, "tensor_split": []}  # not what an earlier load asked for
    one, other, third = ({**alone, "device": [name]} for name in ("RPC0", "RPC1", "RPC0"))
    first = bench.daemon.load(str(models[0]), **one)["id"]
    second = bench.daemon.load(str(models[1]), **other)["id"]
    assert bench.loaded() == {first, second}
    assert bench.plan(models[2], **third)["evict_models"] == [first]
    last = bench.daemon.load(str(models[2]), **third)["id"]
    assert bench.loaded() == {second, last}
    assert bench.daemon.chat(second, "hello", max_tokens=2).status_code == 200
    bench.unload(second, last)


def test_engines_share_a_host_by_bytes(engine_binary: Path, tmp_path: Path) -> None:
    """Two fit beside a small one, a third does not: it takes the place of the one that is planned, and of no other."""
    options = {**COMMON, "ctx_size": 24576, "device": [], "ubatch_size": 2048, "flash_attn": "off"}
    with rpc_worker(engine_binary) as worker, scratch_home() as home:
        devices = {"rpc": [worker], "limit_mib": {"CPU": int(5.25 * GIB) // MIB}}
        with running_daemon(home, engine_binary, {"devices": devices}) as daemon:
            bench = Bench(daemon, engine_binary, tmp_path)
            small = daemon.load(str(bench.model("lfm2/upstream")), **COMMON, ctx_size=512, device=["RPC0"])["id"]
            models = [bench.model(f"{name}/wide") for name in ("llama", "qwen3", "qwen2")]
            for model in models:
                host = by_device(bench.plan(model, **options))["CPU"]
                assert 2 * GIB < host["total_bytes"] < 2.6 * GIB
            first, second = (daemon.load(str(model), **options)["id"] for model in models[:2])
            assert bench.loaded() == {small, first, second}
            plan = bench.plan(models[2], **options)
            assert plan["evict_models"] in ([first], [second])
            third = daemon.load(str(models[2]), **options)["id"]
            assert bench.loaded() == {small, first, second, third} - set(plan["evict_models"])
