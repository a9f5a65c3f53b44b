"""What planner and estimate are told."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from supervisor.core.launch import LaunchOptions, LoraAdapter, ModelFacts, estimate_options, explicit_of
from supervisor.core.memory import EstimateOptions
from supervisor.core.memory.patterns import matcher
from supervisor.core.plan import Explicit
from supervisor.errors import InvalidRequest

# Fields that change no byte that the estimate counts, or that the estimate does not know yet (adapters, draft models).
ELSEWHERE = {
    *(
        "threads",
        "threads_batch",
        "context_shift",
        "rpc",
        "fit",
        "overcommit",
        "load_mode",
        "jinja",
        "skip_chat_parsing",
        "lora",
    ),
    *("chat_template", "chat_template_file", "chat_template_kwargs", "slot_save_path", "keep_kv", "extra_args", "env"),
    *("mmproj", "mmproj_auto", "mmproj_offload", "mmproj_device", "split_mode", "main_gpu"),
}
PREFIXES = ("reasoning", "rope_", "yarn_", "spec_")
CHANGED: dict[str, Any] = {
    "ctx_size": 1, "parallel": 2, "kv_unified": True, "batch_size": 3, "ubatch_size": 4, "cache_type_k": "q8_0",
    "cache_type_v": "q4_0", "flash_attn": "on", "swa_full": True, "cache_ram": 0, "ctx_checkpoints": 0,
    "device": ("CUDA0",), "n_gpu_layers": 0, "tensor_split": (1.0,), "cpu_moe": True, "n_cpu_moe": 1, "n_cpu_ffn": 1,
    "override_tensor": ("x=CPU",), "kv_offload": False, "op_offload": False, "repack": False, "embeddings": "on",
    "pooling": "mean", "reranking": True,
    "spec_type": ("draft-mtp",), "spec_draft_n_max": 9, "spec_draft_type_k": "q8_0", "spec_draft_type_v": "q8_0",
}  # fmt: skip


def test_every_field_that_takes_memory_is_told() -> None:
    counted = {f.name for f in fields(LaunchOptions)} - ELSEWHERE
    assert {name for name in counted if not name.startswith(PREFIXES)} <= CHANGED.keys()


@pytest.mark.parametrize("name", CHANGED)
def test_and_makes_a_difference(name: str) -> None:
    changed = LaunchOptions(**{name: CHANGED[name]})
    assert estimate_options(changed, ModelFacts()) != estimate_options(LaunchOptions(), ModelFacts())


def test_what_is_not_asked_for_is_the_default() -> None:
    assert estimate_options(LaunchOptions(), ModelFacts()) == EstimateOptions()
    assert explicit_of(LaunchOptions()) == Explicit()


def test_how_it_is_told() -> None:
    options = LaunchOptions(
        ctx_size=0,
        device=(),
        override_tensor=(r"blk\.1\.ffn=CUDA0",),
        n_cpu_ffn=2,
        lora=(LoraAdapter("/a"),),
        spec_type=("ngram-mod", "draft-mtp"),
        spec_draft_n_max=0,
    )
    found = estimate_options(options, ModelFacts(encoder=True), cuda=True, mmproj=7)
    assert (found.ctx_size, found.devices, found.embeddings, found.cuda, found.mmproj) == (0, (), True, True, 7)
    assert (found.speculative, found.draft_n_max) == ("draft-mtp", 0)
    assert found.override_tensors == (
        (r"blk\.1\.ffn", "CUDA0"),
        (r"blk\.(?:[0-0]|1)\.ffn_(up|down|gate)\.", "CPU"),
    )


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 36, 99, 100, 101, 999, 1000, 1203, 10_000])
def test_the_first_layers_are_one_short_pattern_however_many_they_are(count: int) -> None:
    ((pattern, _),) = estimate_options(LaunchOptions(n_cpu_ffn=count), ModelFacts()).override_tensors
    assert len(pattern) < 200
    layers = matcher((pattern,))
    near = {0, 1, 9, 10, 11, 99, 100, 999, *range(max(0, count - 12), count + 12)}
    assert {layer for layer in near if layers.first(f"blk.{layer}.ffn_up.weight") == 0} == {
        layer for layer in near if layer < count
    }


@pytest.mark.parametrize("device", [(), ("none",)])
def test_no_device_can_be_said_in_two_ways(device: tuple[str, ...]) -> None:
    assert explicit_of(LaunchOptions(device=device)).devices == ()
    assert estimate_options(LaunchOptions(device=device), ModelFacts()).devices == ()


def test_what_the_user_decided() -> None:
    options = LaunchOptions(
        ctx_size=5,
        device=("CUDA1",),
        tensor_split=(1.0,),
        split_mode="none",
        main_gpu=1,
        n_gpu_layers=2,
        n_cpu_moe=3,
        cache_type_k="q8_0",
        cache_type_v="f16",
    )
    assert explicit_of(options) == Explicit(5, ("CUDA1",), (1.0,), "none", 1, 2, 3, "q8_0", "f16")
    assert explicit_of(LaunchOptions(split_mode="layer")).split_mode == "layer"


@pytest.mark.parametrize("mode", ["row", "tensor"])
def test_splits_that_nothing_can_compute_are_refused(mode: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be planned") as caught:
        explicit_of(LaunchOptions(split_mode="row" if mode == "row" else "tensor"))
    assert caught.value.param == "split_mode"
