"""Each rung of the ladder, on machines that people have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Budgets, Explicit, Learned, Placement, PlanRequest, Policy, Resident
from tests.core.plan.support import GIB, estimated, fails, machine, places, spec_of

TWO_24 = machine(23, 23, host=62)
ONE_24 = machine(23, host=126)
ONE_80 = machine(79, host=126)
EIGHT_141 = machine(*[140.0] * 8, host=1000)
MAC_64 = machine(48, host=60, backend="metal", shares_host=True)
CPU_16 = machine(host=14)


def request(name: str, explicit: Explicit | None = None, **options: object) -> PlanRequest:
    return PlanRequest(name, spec_of(name), EstimateOptions(**options), explicit or Explicit())  # type: ignore[arg-type]  # by name


def idle(engine: int, seconds: float = 100, **used: float) -> Resident:
    sizes = {name: int(size * GIB) for name, size in used.items()}
    return Resident(engine, f"model-{engine}", sizes, evictable=True, idle_seconds=seconds)


def test_one_device_is_enough_and_the_context_is_native() -> None:
    found = places(request("llama-3.1-8b"), ONE_80)
    assert (found.devices, found.tensor_split, found.n_gpu_layers) == (("CUDA0",), (), 33)
    assert found.options.ctx_size == found.native_ctx == found.fitting_ctx == 131_072
    assert found.why[0] == "All 33 layers are on CUDA0."


def test_a_context_grows_and_leaves_a_share() -> None:
    found = places(request("llama-3.1-8b"), machine(14, host=16))
    assert found.options.ctx_size is not None
    assert found.wanted_ctx < found.options.ctx_size < found.fitting_ctx < found.native_ctx
    wanted = places(request("llama-3.1-8b"), machine(14, host=16), policy=Policy(growth_share=1.0))
    assert wanted.options.ctx_size == 32_768
    assert found.parts[0].left_bytes == pytest.approx(wanted.parts[0].left_bytes / 4, rel=0.02)
    all_of_it = places(request("llama-3.1-8b"), machine(14, host=16), policy=Policy(growth_share=0.0))
    assert all_of_it.options.ctx_size == all_of_it.fitting_ctx == found.fitting_ctx
    fails(request("llama-3.1-8b", Explicit(ctx_size=found.fitting_ctx + 256, devices=("CUDA0",))), machine(14, host=1))


def test_two_devices_are_filled_alike() -> None:
    found = places(request("gemma-3-27b"), TWO_24)
    assert found.devices == ("CUDA0", "CUDA1")
    assert sum(found.tensor_split) == found.n_gpu_layers == 63
    filled = [part.total_bytes for part in found.parts[:2]]
    assert max(filled) < 1.1 * min(filled)
    assert "With one device, " in found.why[1]


def test_of_unequal_devices_the_larger_gets_more() -> None:
    found = places(request("gemma-3-27b"), machine(23, 17, host=62))
    first, second = found.parts[:2]
    assert first.layers > second.layers
    assert first.total_bytes / 23 == pytest.approx(second.total_bytes / 17, rel=0.1)


def test_a_large_model_takes_three_of_eight() -> None:
    found = places(request("deepseek-v3"), EIGHT_141)
    assert found.devices == ("CUDA0", "CUDA1", "CUDA2")
    assert found.options.ctx_size == found.native_ctx


def test_the_tightest_device_that_gives_the_native_context_is_taken() -> None:
    busy = [replace(idle(1, CUDA0=100), evictable=False), replace(idle(2, CUDA3=60), evictable=False)]
    assert places(request("llama-3.1-8b"), EIGHT_141, busy).devices == ("CUDA0",)
    assert places(request("llama-3.3-70b"), EIGHT_141, busy).devices == ("CUDA1",)  # 80 GiB give less than native
    tight = machine(10, 12, 11, host=62)
    assert places(request("llama-3.1-8b"), tight).devices == ("CUDA1",)  # none gives it: the one with most room


def test_devices_of_equal_room_are_no_trouble() -> None:
    """With the second of the equals, the largest would come first and hold the projector: that does not fit."""
    given = replace(request("llama-3.1-8b", Explicit(ctx_size=4096)), projector_bytes=GIB)
    found = places(given, machine(2, 5, 2, host=4), policy=Policy(partial_offload=False))
    assert found.devices == ("CUDA0", "CUDA1")


def test_a_context_too_large_for_the_devices_is_not_reached_by_growing() -> None:
    """With all layers on the second device, the first would have room for the projector and nothing else."""
    small = replace(request("llama-3.1-8b", parallel=1), projector_bytes=2 * GIB)
    policy = Policy(growth_share=0, partial_offload=False)
    found = places(small, machine(2.6, 9, host=4, reserve=0.1), policy=policy)
    assert found.devices == ("CUDA0", "CUDA1")
    assert min(found.tensor_split) > 0
    assert found.estimate.n_ctx_seq < found.wanted_ctx


def test_a_smaller_cache_type_comes_before_a_smaller_context() -> None:
    small = machine(21.5, 21.5, host=2)
    found = places(request("llama-3.3-70b"), small, policy=Policy(kv_types=("f16", "q4_0"), growth_share=1))
    assert (found.options.cache_type_k, found.options.cache_type_v, found.options.ctx_size) == ("q4_0", "q4_0", 32_768)
    assert any("The cache is q4_0: with f16 the wanted" in sentence for sentence in found.why)
    keys = replace(request("llama-3.3-70b"), explicit=Explicit(cache_type_k="q8_0"))
    found = places(keys, small, policy=Policy(kv_types=("f16", "q8_0"), growth_share=1))
    assert any("The cache is q8_0: with q8_0 for keys and f16 for values the" in sentence for sentence in found.why)
    found = places(request("llama-3.3-70b"), small)
    assert found.options.cache_type_k == "f16"
    assert 4096 < found.estimate.n_ctx < 32_768
    assert found.estimate.n_ctx == found.fitting_ctx
    assert any("do not fit" in sentence for sentence in found.why)


def test_experts_go_to_the_host_before_layers_do() -> None:
    found = places(request("gpt-oss-120b"), ONE_24)
    assert found.n_gpu_layers == 37
    assert 0 < found.n_cpu_moe < 36
    fewer = Explicit(ctx_size=32_768, n_cpu_moe=found.n_cpu_moe - 1)
    fails(request("gpt-oss-120b", fewer), ONE_24, policy=Policy(partial_offload=False))
    found = places(request("gpt-oss-120b"), ONE_24, policy=Policy(cpu_moe=False))
    assert found.n_cpu_moe == 0
    assert 0 < found.n_gpu_layers < 37


def test_as_many_layers_as_fit_are_on_devices() -> None:
    found = places(request("llama-3.3-70b"), ONE_24)
    assert 0 < found.n_gpu_layers < 81
    assert found.parts[-1].layers == 81 - found.n_gpu_layers
    more = Explicit(ctx_size=32_768, n_gpu_layers=found.n_gpu_layers + 1)
    fails(request("llama-3.3-70b", more), ONE_24)
    fails(request("llama-3.3-70b"), ONE_24, policy=Policy(partial_offload=False))


def test_a_device_without_room_leaves_the_host() -> None:
    found = places(request("llama-3.1-8b"), machine(0.5, host=62))
    assert (found.devices, found.n_gpu_layers) == ((), 0)


def test_a_mac_counts_its_memory_once() -> None:
    found = places(request("llama-3.3-70b"), MAC_64, policy=Policy(kv_types=("f16", "q8_0")))
    assert found.devices == ("METAL0",)
    assert found.parts[0].total_bytes + found.parts[1].total_bytes <= 60 * GIB
    held = Resident(1, "other", {"CPU": 30 * GIB})
    assert fails(request("llama-3.3-70b"), MAC_64, [held], Policy(kv_types=("q8_0",))).later


def test_a_machine_without_devices() -> None:
    found = places(request("llama-3.1-8b"), CPU_16)
    assert (found.devices, found.n_gpu_layers, found.tensor_split) == ((), 0, ())
    assert found.options.ctx_size is not None
    assert 32_768 <= found.options.ctx_size < 131_072
    found = places(request("llama-3.1-8b"), machine(host=8), policy=Policy(kv_types=("f16", "q8_0")))
    assert found.options.cache_type_k == "q8_0"


def test_slots_of_their_own_divide_the_context() -> None:
    found = places(request("llama-3.1-8b", parallel=4), ONE_80, policy=Policy(growth_share=1.0))
    assert found.options.ctx_size == 4 * 32_768
    assert found.estimate.n_ctx_seq == found.wanted_ctx == 32_768
    assert "Each of 4 slots has 32,768 tokens of its own; one request gets no more." in found.why
    shared = places(request("llama-3.1-8b"), ONE_80, policy=Policy(growth_share=1.0))
    assert shared.estimate.n_ctx_seq == shared.options.ctx_size == 32_768


def test_a_small_native_context_is_all_that_is_wanted() -> None:
    found = places(request("gemma-2-27b"), ONE_80)
    assert found.wanted_ctx == found.native_ctx == found.options.ctx_size == 8192


@pytest.mark.parametrize(
    ("company", "leaves"),
    [
        ([idle(1, CUDA0=20), idle(2, CUDA1=2)], ()),  # CUDA1 is roomy enough
        ([idle(1, 50, CUDA0=20), idle(2, CUDA1=16), idle(3, CUDA1=2)], (2,)),
        ([idle(1, 900, CUDA0=20), idle(2, 10, CUDA1=20), idle(3, 9000, CUDA1=1)], (1,)),
        ([idle(1, CUDA0=7.5), idle(2, CUDA0=7.5), idle(3, CUDA0=7.5), idle(4, CUDA1=22.5)], (4,)),
    ],
)
def test_the_cheapest_set_leaves_where_it_helps(company: list[Resident], leaves: tuple[int, ...]) -> None:
    found = places(request("llama-3.1-8b"), TWO_24, company)
    assert found.evict == leaves
    assert len(found.devices) == 1


def test_more_devices_come_before_evictions() -> None:
    company = [idle(1, CUDA0=16), idle(2, CUDA1=16)]
    found = places(request("llama-3.1-8b"), TWO_24, company)
    assert (len(found.devices), found.evict) == (2, ())


def test_an_eviction_comes_before_a_smaller_context() -> None:
    found = places(request("llama-3.1-8b"), machine(23, host=62), [idle(1, CUDA0=15)])
    assert found.evict == (1,)
    assert found.estimate.n_ctx_seq >= 32_768


def test_priority_keeps_an_engine() -> None:
    company = [replace(idle(1, CUDA0=20), priority=5), idle(2, CUDA1=20)]
    assert places(request("llama-3.1-8b"), TWO_24, company).evict == (2,)


def test_what_was_measured_counts() -> None:
    plain = places(request("llama-3.1-8b"), ONE_80)
    learned = Learned({"CUDA0": 0.5}, {"CUDA0": 3 * GIB})
    found = places(replace(request("llama-3.1-8b"), learned=learned), ONE_80)
    assert found.learned
    assert not plain.learned
    assert found.parts[0].compute_bytes == -(-plain.parts[0].compute_bytes // 2)
    assert found.parts[0].reserve_bytes == 3 * GIB
    assert found.parts[1] == plain.parts[1]


def test_a_draft_model_and_a_projector_are_on_the_first_device() -> None:
    asked = replace(request("llama-3.3-70b"), draft=spec_of("llama-3.1-8b"), projector_bytes=GIB)
    found = places(asked, machine(40, 40, host=62))
    assert found.draft_device == "CUDA0"
    first, second, host = found.parts
    assert first.projector_bytes == GIB
    drafted = estimated(spec_of("llama-3.1-8b"), EstimateOptions(ctx_size=found.options.ctx_size, backend="cuda"))
    assert first.draft_bytes == drafted.devices[0].total_bytes
    assert second.draft_bytes == second.projector_bytes == 0
    assert host.draft_bytes == drafted.devices[-1].total_bytes + drafted.output_bytes


def test_nextn_blocks_draft_with_the_model() -> None:
    found = places(request("glm-4.5-air", speculative="draft-mtp"), machine(70, 70, host=62))
    plain = places(request("glm-4.5-air"), machine(70, 70, host=62))
    assert found.estimate.weights_bytes > plain.estimate.weights_bytes


def test_explicit_settings_are_kept() -> None:
    explicit = Explicit(
        ctx_size=10_000, devices=("CUDA1", "CUDA0"), tensor_split=(3.0, 1.0), cache_type_k="q8_0", n_gpu_layers=20
    )
    found = places(request("llama-3.1-8b", explicit), TWO_24)
    assert (found.devices, found.n_gpu_layers, found.options.ctx_size) == (("CUDA1", "CUDA0"), 20, 10_000)
    assert (found.options.tensor_split, found.tensor_split) == ((3.0, 1.0), (15, 5))
    assert (found.options.cache_type_k, found.options.cache_type_v) == ("q8_0", "f16")


def test_an_explicit_list_of_devices_is_used_as_a_whole() -> None:
    found = places(request("llama-3.1-8b", Explicit(devices=("CUDA0", "CUDA1"))), TWO_24)
    assert min(found.tensor_split) > 10


def test_no_devices_wanted() -> None:
    found = places(request("llama-3.1-8b", Explicit(devices=())), TWO_24)
    assert (found.devices, found.n_gpu_layers) == ((), 0)
    found = places(request("llama-3.1-8b", Explicit(n_gpu_layers=0)), TWO_24)
    assert (found.devices, found.n_gpu_layers) == ((), 0)


def test_one_device_of_several_by_its_number() -> None:
    found = places(request("llama-3.1-8b", Explicit(split_mode="none", main_gpu=1)), TWO_24)
    assert (found.devices, found.main_gpu, found.split_mode) == (("CUDA0", "CUDA1"), 1, "none")
    assert [part.name for part in found.parts] == ["CUDA1", "CPU"]


def test_context_0_is_the_native_one() -> None:
    assert places(request("llama-3.1-8b", Explicit(ctx_size=0)), ONE_80).options.ctx_size == 131_072
    fails(request("llama-3.1-8b", Explicit(ctx_size=0)), machine(12, host=2))


@pytest.mark.parametrize("budgets", [TWO_24, ONE_80, MAC_64, CPU_16])
def test_a_cache_type_that_the_model_cannot_have_is_passed_over(budgets: Budgets) -> None:
    found = places(replace(request("llama-3.1-8b", flash_attn="off")), budgets, policy=Policy(kv_types=("q8_0",)))
    assert found.options.cache_type_v == "f16"


def test_a_placement_as_json() -> None:
    found = places(request("gemma-3-27b"), TWO_24)
    shown: Any = found.to_json()
    assert (shown["fits"], shown["devices"], shown["ctx_size"]) == (True, ["CUDA0", "CUDA1"], 131_072)
    assert shown["parts"][0]["total_bytes"] == found.used_bytes["CUDA0"]
    assert shown["estimate"]["n_ctx"] == shown["request_ctx"] == 131_072
    assert isinstance(found, Placement)
