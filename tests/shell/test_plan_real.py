"""Plans of a real daemon against what real engines then log, on two RPC workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.footprint import Footprint
from supervisor.core.identity import model_identity
from supervisor.modelfiles import open_model
from supervisor.paths import places
from supervisor.store import Database, Footprints
from tests.evidence.subjects import write_subject
from tests.support.daemon import RunningDaemon, environment, running_daemon, scratch_home, wait_until
from tests.support.workers import rpc_worker

pytestmark = pytest.mark.engine

MIB = 1 << 20
EXACT = ("weights_bytes", "kv_bytes", "recurrent_bytes")
ROUNDING = 0.005 * MIB + 1  # of one line of the log
BOTH = ("RPC0", "RPC1")


@dataclass(frozen=True)
class Bench:
    """A daemon with two workers as its devices, and the models made for it."""

    daemon: RunningDaemon
    binary: Path
    folder: Path

    def model(self, subject: str) -> Path:
        return write_subject(subject, self.folder)

    def plan(self, target: Path, **options: Any) -> dict[str, Any]:
        body = {"target": str(target), "options": options}
        answer = self.daemon.http.post("/api/v1/plan", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def load(self, target: Path, **options: Any) -> Footprint:
        """Load, unload; what the engine said that it held, as it was kept."""
        before = len(self.kept(target))
        status = self.daemon.load(str(target), **options)
        wait_until(lambda: len(self.kept(target)) > before, 5, "the start is kept")
        self.daemon.http.post("/api/v1/models/unload", json={"model": status["id"]})
        found = self.kept(target)[0]
        assert status["footprint"] == found.used_bytes
        return found

    def kept(self, target: Path) -> list[Footprint]:
        where = places(environment(self.daemon.home, self.binary))
        with Database.read(where.database) as database:
            found = Footprints(database).find(model_identity(open_model(target).header))
        return [one.footprint for one in found]


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


def by_device(plan: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {part["name"]: part for part in plan["parts"]}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama/wide", {}),
    "window": ("gemma3/wide", {"parallel": 2, "tensor_split": [3, 1]}),
    "window, other order": ("gemma3/wide", {"device": ["RPC1", "RPC0"], "tensor_split": [1, 2], "swa_full": True}),
    "latent": ("deepseek2+experts/wide", {}),
    "experts": ("qwen3moe+experts/wide", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    "experts on the host": ("qwen3moe+experts/wide", {"n_cpu_moe": 3}),
    "sinks": ("gpt-oss+experts/wide", {"parallel": 1}),
    "delta net": ("qwen3next+experts/wide", {}),
    "mamba and attention": ("granitehybrid/wide", {"tensor_split": [1, 3]}),
    "jamba": ("jamba/wide", {}),
    "mamba": ("mamba2/wide", {"parallel": 3}),
    "rwkv": ("rwkv7/wide", {}),
    "some layers on the host": ("qwen3/wide", {"n_gpu_layers": 6}),
    "shared caches": ("gemma3n/wide", {}),
    "lfm2": ("lfm2/wide", {}),
    "falcon-h1": ("falcon-h1/wide", {}),
}


@pytest.mark.parametrize(("subject", "given"), CASES.values(), ids=CASES)
def test_a_plan_is_what_the_engine_then_holds(bench: Bench, subject: str, given: dict[str, Any]) -> None:
    model = bench.model(subject)
    options = {"ctx_size": 4096, "device": BOTH, "load_mode": "none", "parallel": 1, **given}
    plan = bench.plan(model, **options)
    assert plan["fits"], plan
    parts = by_device(plan)
    found = bench.load(model, **options)
    for name, part in parts.items():
        told = found.on(name)
        for key in EXACT:
            assert abs(part[key] - getattr(told, key)) <= MIB, (name, key)
        assert told.compute_bytes - ROUNDING <= part["compute_bytes"] <= told.compute_bytes * 1.15 + MIB, name
    assert set(parts) == {*BOTH, "CPU"}
