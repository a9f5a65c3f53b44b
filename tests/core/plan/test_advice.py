"""What a model that does not fit is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Explicit, PlanRequest, Policy, Resident
from tests.core.plan.support import GIB, fails, machine, places, spec_of

ONLY_DEVICES = Policy(cpu_moe=False, partial_offload=False)


def request(name: str, explicit: Explicit | None = None) -> PlanRequest:
    return PlanRequest(name, spec_of(name), explicit=explicit or Explicit())


def test_how_much_is_missing_and_where() -> None:
    found = fails(request("llama-3.1-8b"), machine(3, host=1, reserve=0), policy=ONLY_DEVICES)
    (shortage,) = found.shortages
    assert shortage.device == "CUDA0"
    assert shortage.usable_bytes == 3 * GIB
    fits = replace(machine(3, host=1, reserve=0).devices[0], usable_bytes=shortage.needed_bytes)
    enough = replace(machine(3, host=1), devices=(fits,))
    assert places(request("llama-3.1-8b"), enough, policy=ONLY_DEVICES).options.ctx_size == 4096
    assert "CUDA0: " in found.message
    assert not found.later


def test_what_is_missing_on_two_devices_is_spread() -> None:
    found = fails(request("llama-3.3-70b"), machine(18, 18, host=2, reserve=0), policy=ONLY_DEVICES)
    assert [shortage.device for shortage in found.shortages] == ["CUDA0", "CUDA1"]
    grown = [
        replace(device, usable_bytes=shortage.needed_bytes)
        for device, shortage in zip(machine(18, 18, host=2, reserve=0).devices, found.shortages, strict=True)
    ]
    places(request("llama-3.3-70b"), replace(machine(host=2), devices=tuple(grown)), policy=ONLY_DEVICES)


def test_a_host_that_is_too_small() -> None:
    found = fails(request("llama-3.1-8b"), machine(host=2))
    assert [shortage.device for shortage in found.shortages] == ["CPU"]


def test_a_smaller_context_that_fits_is_named() -> None:
    asked = request("llama-3.1-8b", Explicit(ctx_size=131_072))
    found = fails(asked, machine(12, host=2), policy=ONLY_DEVICES)
    hint = next(hint for hint in found.hints if "context" in hint)
    tokens = int(hint.split(" of ")[1].split()[0].replace(",", ""))
    places(request("llama-3.1-8b", Explicit(ctx_size=tokens)), machine(12, host=2), policy=ONLY_DEVICES)
    fails(request("llama-3.1-8b", Explicit(ctx_size=tokens + 256)), machine(12, host=2), policy=ONLY_DEVICES)


def test_hints_are_what_would_fit() -> None:
    asked = request("llama-3.1-8b", Explicit(ctx_size=65_536))
    assert "A q8_0 cache would fit." in fails(asked, machine(11, host=2)).hints
    assert "A q8_0 cache would fit." not in fails(asked, machine(8, host=2)).hints
    assert "With layers on the CPU (partial_offload) it would fit." in (
        fails(request("llama-3.3-70b"), machine(23, host=62), policy=ONLY_DEVICES).hints
    )
    assert "With experts on the CPU (cpu_moe) it would fit." in (
        fails(request("gpt-oss-120b"), machine(23, host=62), policy=ONLY_DEVICES).hints
    )
    listed = Explicit(devices=("CUDA1",), n_gpu_layers=33)
    found = fails(request("llama-3.1-8b", listed), machine(23, 2, host=62))
    assert "Without a list of devices or a split it would fit." in found.hints
    assert "With the number of GPU layers left to the planner it would fit." in found.hints


def test_the_largest_smaller_quantisation_that_fits_is_named() -> None:
    siblings = (("Q8_0", 75 * GIB), ("IQ2_M", 22 * GIB), ("Q3_K_S", 29 * GIB), ("IQ1_S", 15 * GIB))
    asked = replace(request("llama-3.3-70b"), siblings=siblings)
    found = fails(asked, machine(27, host=2), policy=ONLY_DEVICES)
    assert "IQ2_M (22.0 GiB) would fit." in found.hints
    assert len([hint for hint in found.hints if "GiB" in hint]) == 1


def test_engines_that_are_busy_are_waited_for() -> None:
    company = [
        Resident(1, "chat", {"CUDA0": 18 * GIB}),
        Resident(2, "small", {"CUDA0": GIB}),
        Resident(3, "other", {"CUDA1": 20 * GIB}, evictable=True),
    ]
    asked = request("gemma-3-27b")
    found = fails(asked, machine(23, 23, host=2), company, ONLY_DEVICES)
    assert found.later
    assert found.blockers == (1,)
    assert "engine 1 (chat)" in found.message
    assert found.hints[0] == "Unload or unpin chat."
    assert places(asked, machine(23, 23, host=2), company[1:], ONLY_DEVICES).evict == (3,)
    assert not fails(request("deepseek-v3"), machine(23, 23, host=2), company, ONLY_DEVICES).later


def test_what_the_engine_would_refuse_is_refused() -> None:
    asked = request("llama-3.1-8b", Explicit(cache_type_v="q9_9"))
    found = fails(asked, machine(80, host=60))
    assert found.refusal
    assert found.refusal.code == "unknown_cache_type"
    assert found.message == found.refusal.message
    slots = replace(request("llama-3.1-8b"), options=EstimateOptions(parallel=1000))
    shown: Any = fails(slots, machine(80, host=60)).to_json()
    assert shown["refusal"]["code"] == "too_many_slots"
    drafted = replace(request("llama-3.1-8b"), draft=replace(spec_of("llama-3.1-8b"), n_ctx_train=0))
    assert fails(drafted, machine(80, host=60)).refusal


def test_a_refusal_as_json() -> None:
    shown: Any = fails(request("deepseek-v3"), machine(24, host=64)).to_json()
    assert (shown["fits"], shown["later"], shown["refusal"]) == (False, False, None)
    assert shown["shortages"][0]["missing_bytes"] > 200 * GIB
