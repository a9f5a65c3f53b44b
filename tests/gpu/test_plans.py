"""Plans for one, two and three GPUs against the account that engines then give of their buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.gpu.conftest import Benches
from tests.support.gpu import MIB
from tests.support.planning_bench import by_device

pytestmark = [pytest.mark.engine, pytest.mark.gpu]

EXACT = ("weights_bytes", "kv_bytes", "recurrent_bytes")
ROUNDING = 0.005 * MIB + 1  # of one line of the log
COMMON: dict[str, Any] = {"load_mode": "none", "parallel": 1, "ctx_size": 1024, "repack": False}
ONE, TWO, THREE = (["Vulkan0", "Vulkan1", "Vulkan2"][:count] for count in (1, 2, 3))


@dataclass(frozen=True)
class Case:
    """A model, the devices of the machine, and how it is started. `lines`: of the log, that a figure is the sum of."""

    devices: int
    subject: str
    options: Mapping[str, Any]
    lines: int = 2


CASES = {
    "plain": Case(1, "llama/upstream", {}),
    "quantised caches": Case(1, "llama/upstream", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    "flash attention off": Case(1, "gemma3/upstream", {"flash_attn": "off"}),
    "window": Case(1, "gemma3/upstream", {"parallel": 2}),
    "some layers on the host": Case(1, "qwen3/wide", {"n_gpu_layers": 5}),
    "no layer on the device": Case(1, "llama/upstream", {"device": ONE, "n_gpu_layers": 0}),
    "the output alone": Case(1, "llama/upstream", {"n_gpu_layers": 1}),
    "the host alone": Case(1, "llama/upstream", {"device": []}),
    "caches on the host": Case(1, "llama/upstream", {"kv_offload": False}),
    "experts": Case(1, "qwen3moe+experts/upstream", {}),
    "all experts on the host": Case(1, "qwen3moe+experts/upstream", {"cpu_moe": True}),
    "experts of a layer on the host": Case(1, "gpt-oss+experts/upstream", {"n_cpu_moe": 1}),
    "feed-forward of a layer on the host": Case(1, "llama/upstream", {"n_cpu_ffn": 1}),
    "a tensor elsewhere": Case(2, "llama/upstream", {"device": TWO, "override_tensor": [r"blk\.0\.ffn_up=Vulkan1"]}),
    "latent": Case(1, "deepseek2+experts/upstream", {"flash_attn": "off"}),
    "delta net": Case(1, "qwen3next+experts/upstream", {}),
    "mamba": Case(1, "mamba2/upstream", {"parallel": 2}),
    "two devices": Case(2, "llama/wide", {"device": TWO}),
    "two devices, other order": Case(2, "llama/upstream", {"device": TWO[::-1], "tensor_split": [2, 1]}),
    "two devices, one used": Case(2, "llama/upstream", {"device": TWO, "split_mode": "none", "main_gpu": 1}),
    "one of two, counted": Case(2, "llama/upstream", {"split_mode": "none", "main_gpu": 1}),
    "the second of two": Case(2, "llama/upstream", {"device": ["Vulkan1"]}),
    "two devices, a share of nothing": Case(2, "llama/upstream", {"device": TWO, "tensor_split": [0, 1]}),
    "two devices, experts on the host": Case(2, "qwen3moe+experts/upstream", {"device": TWO, "n_cpu_moe": 1}),
    "two devices, caches on the host": Case(2, "llama/upstream", {"device": TWO, "kv_offload": False}),
    "two devices, some layers on the host": Case(2, "qwen3/wide", {"device": TWO, "n_gpu_layers": 5}),
    "two devices, mamba and attention": Case(2, "granitehybrid/wide", {"device": TWO}),
    "three devices": Case(3, "llama/wide", {"device": THREE}),
    "three devices, window": Case(3, "gemma3/wide", {"device": THREE, "tensor_split": [3, 2, 4], "swa_full": True}),
    "three devices, delta net": Case(3, "qwen3next+experts/wide", {"device": THREE}),
    "three devices, two used": Case(3, "llama/upstream", {"device": THREE}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_the_engine_then_holds(gpus: Benches, name: str) -> None:
    case = CASES[name]
    bench = gpus(case.devices)
    model = bench.model(case.subject, name)
    options = {**COMMON, **case.options}
    plan = bench.plan(model, **options)
    assert plan["fits"], plan
    assert not plan["learned"]
    parts = by_device(plan)
    found = bench.load(model, **options)
    for device, part in parts.items():
        told = found.on(device)
        for key in EXACT:
            assert abs(part[key] - getattr(told, key)) <= case.lines * ROUNDING, (device, key)
        assert told.compute_bytes - ROUNDING <= part["compute_bytes"], device
    assert set(found.used_bytes) <= set(parts)
