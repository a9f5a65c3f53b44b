"""What is tried after a load that failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.launch import LaunchOptions, estimate_options, explicit_of
from supervisor.core.launch.facts import ModelFacts
from supervisor.core.launch.fallback import (
    Fallback,
    next_fallback,
    unguessed,
    with_fallback,
    without_draft,
    without_shortage,
)
from supervisor.core.plan import Budgets, DoesNotFit, Placement, PlanRequest, Policy, Resident, plan
from supervisor.core.schedule.events import Failure
from tests.core.plan.support import GIB, machine, spec_of

MIB = 1 << 20
SPEC = spec_of("llama-3.1-8b")


def oom(device: str | None, lacking: int | None = None) -> Failure:
    return Failure("out_of_memory", "", device=device, lacking=lacking)


def planned(
    fallback: Fallback, budgets: Budgets, options: LaunchOptions | None = None, residents: tuple[Resident, ...] = ()
) -> Placement | DoesNotFit:
    wanted = options or LaunchOptions()
    request = PlanRequest("m", SPEC, estimate_options(wanted, ModelFacts()), explicit_of(wanted), short=fallback.short)
    return plan(request, budgets, residents, Policy(kv_types=("f16", "q8_0")))


def placed(fallback: Fallback, budgets: Budgets, options: LaunchOptions | None = None) -> Placement:
    found = planned(fallback, budgets, options)
    assert isinstance(found, Placement), found
    return found


def climbed(fallback: Fallback, failure: Failure, options: LaunchOptions, found: Placement) -> Fallback:
    after = next_fallback(fallback, failure, options, found)
    assert after is not None
    return after


def asked(found: Placement, fallback: Fallback) -> int:
    """What the engine will really ask of the device."""
    return found.used_bytes["CUDA0"] - fallback.short.get("CUDA0", 0) if found.n_gpu_layers else 0


@pytest.mark.parametrize("size", [8.0, 12.0, 24.0, 80.0])
def test_memory_that_ran_out_is_planned_for_and_every_plan_is_another(size: float) -> None:
    budgets, options, fallback = machine(size, host=64), LaunchOptions(), Fallback()
    seen = [placed(fallback, budgets)]
    wanted = asked(seen[0], fallback)
    for _ in range(3):
        fallback = climbed(fallback, oom("CUDA0", 800 * MIB), options, seen[-1])
        found = placed(fallback, budgets)
        assert (found.options, found.n_gpu_layers) != (seen[-1].options, seen[-1].n_gpu_layers)
        assert asked(found, fallback) < wanted
        wanted = asked(found, fallback)
        seen.append(found)
    assert next_fallback(fallback, oom("CUDA0", 800 * MIB), options, seen[-1]) is None
    assert len(fallback.steps) == 3
    assert all("CUDA0" in step for step in fallback.steps)
    assert any("ran out of memory there" in why for why in seen[-1].why)


def test_an_eighth_a_half_and_all_of_the_buffer_are_kept_free_beside_what_was_left() -> None:
    found = placed(Fallback(), machine(24, host=64))
    (left,) = (max(0, part.left_bytes) for part in found.parts if part.name == "CUDA0")
    fallback, kept = Fallback(), []
    for _ in range(3):
        before = fallback.short.get("CUDA0", 0)
        fallback = climbed(fallback, oom("CUDA0", 800 * MIB), LaunchOptions(), found)
        kept.append(fallback.short["CUDA0"] - before - left)
    assert kept == [100 * MIB, 400 * MIB, 800 * MIB]
    small = climbed(Fallback(), oom("CUDA0", 8 * MIB), LaunchOptions(), found)
    assert small.short["CUDA0"] - left == 64 * MIB, "at least as much"


def test_each_device_has_tries_of_its_own() -> None:
    budgets, options, fallback = machine(24, 24, 24, host=64), LaunchOptions(ctx_size=8192), Fallback()
    seen = []
    while (found := placed(fallback, budgets, options)).devices:
        seen.append(found.devices[0])
        fallback = climbed(fallback, oom(seen[-1], 22 * GIB), options, found)
    assert set(seen) == {"CUDA0", "CUDA1", "CUDA2"}, "the host is taken once all have been tried"
    assert fallback.tries == {name: seen.count(name) for name in seen}
    assert without_shortage(replace(fallback, no_draft=True, steps=("x", *fallback.steps))) == Fallback(
        no_draft=True, steps=("x",)
    )


def test_a_device_that_the_engine_does_not_name_counts_for_all_that_have_tries_left() -> None:
    budgets, options = machine(12, 12, host=64), LaunchOptions(ctx_size=65536, n_gpu_layers=99)
    found = placed(Fallback(), budgets, options)
    assert set(found.devices) == {"CUDA0", "CUDA1"}
    after = climbed(Fallback(tries={"CUDA0": 3}), oom(None), options, found)
    assert set(after.short) == {"CUDA1"}
    spent = Fallback(tries={"CUDA0": 3, "CUDA1": 3})
    assert next_fallback(spent, oom(None), options, found) is None


def test_what_the_user_set_is_kept_when_memory_ran_out() -> None:
    options = LaunchOptions(ctx_size=65536, cache_type_k="f16", cache_type_v="f16", n_gpu_layers=99)
    budgets = machine(24, host=64)
    first = placed(Fallback(), budgets, options)
    found = planned(climbed(Fallback(), oom("CUDA0", 800 * MIB), options, first), budgets, options)
    assert isinstance(found, DoesNotFit), "the same again would fail again"


def test_others_leave_when_memory_ran_out() -> None:
    budgets = machine(24, host=8)
    other = Resident(7, "other", {"CUDA0": 10 * GIB}, evictable=True)
    options = LaunchOptions(ctx_size=32768, n_gpu_layers=99, cache_type_k="f16", cache_type_v="f16")
    first = planned(Fallback(), budgets, options, (other,))
    assert isinstance(first, Placement)
    assert first.evict == ()
    again = planned(climbed(Fallback(), oom("CUDA0", 800 * MIB), options, first), budgets, options, (other,))
    assert isinstance(again, Placement)
    assert again.evict == (7,)


def test_memory_of_no_named_device_is_that_of_all_devices_of_the_plan() -> None:
    found = placed(Fallback(), machine(6, 6, host=64))
    assert len(found.devices) == 2
    assert set(climbed(Fallback(), oom(None), LaunchOptions(), found).short) == {"CUDA0", "CUDA1"}
    alone = placed(Fallback(), Budgets((), machine(host=64).host))
    assert set(climbed(Fallback(), oom(None), LaunchOptions(), alone).short) == {"CPU"}


def test_the_kernels_kill_is_planned_for_once_on_the_host() -> None:
    found = placed(Fallback(), machine(24, host=64))
    killed = Failure("engine_killed", "", device="CPU")
    after = climbed(Fallback(), killed, LaunchOptions(), found)
    assert set(after.short) == {"CPU"}
    assert next_fallback(after, killed, LaunchOptions(), found) is None


def test_a_guess_that_is_not_heeded_is_not_told() -> None:
    found = placed(Fallback(), machine(24, host=64))
    after = climbed(Fallback(steps=("Before.",)), Failure("engine_killed", "", device="CPU"), LaunchOptions(), found)
    assert "are kept free" in after.steps[1]
    told = unguessed(after)
    assert told.steps == ("Before.", "The engine was killed: started once more as it was.")
    assert replace(told, steps=after.steps) == after


PLAN = placed(Fallback(), machine(24, host=64))
FOUND = LaunchOptions(mmproj_auto=True)
DRAFTING = LaunchOptions(spec_draft_model="d.gguf", spec_type=("draft-simple", "ngram-mod"), spec_draft_n_max=3)


@pytest.mark.parametrize(
    ("code", "options", "becomes"),
    [
        ("projector_failed", FOUND, replace(FOUND, mmproj_auto=False)),
        ("draft_failed", DRAFTING, LaunchOptions(spec_type=("ngram-mod",))),
        ("draft_failed", LaunchOptions(spec_type=("draft-mtp",)), LaunchOptions()),
        ("flash_attn_unsupported", LaunchOptions(), LaunchOptions(flash_attn="off")),
        ("flash_attn_unsupported", LaunchOptions(flash_attn="auto"), LaunchOptions(flash_attn="off")),
    ],
)
def test_what_fails_is_left_out_once(code: str, options: LaunchOptions, becomes: LaunchOptions) -> None:
    after = climbed(Fallback(), Failure(code, ""), options, PLAN)
    assert with_fallback(options, after) == becomes
    assert len(after.steps) == 1
    assert next_fallback(after, Failure(code, ""), options, PLAN) is None


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("projector_failed", LaunchOptions(mmproj="p.gguf")),
        ("flash_attn_unsupported", LaunchOptions(flash_attn="on")),
        ("flash_attn_unsupported", LaunchOptions(cache_type_v="q8_0")),
        ("draft_failed", LaunchOptions()),
        ("architecture_unknown", LaunchOptions()),
        ("model_file_broken", LaunchOptions()),
        ("launch_option_refused", LaunchOptions()),
        ("engine_start_failed", LaunchOptions()),
        ("engine_stalled", LaunchOptions()),
    ],
)
def test_nothing_is_tried_against_the_users_wish_or_where_nothing_helps(code: str, options: LaunchOptions) -> None:
    assert next_fallback(Fallback(), Failure(code, ""), options, PLAN) is None


def test_after_a_crash_it_is_started_once_more_then_without_repacked_weights() -> None:
    crash, options = Failure("engine_crashed", ""), LaunchOptions()
    again = climbed(Fallback(), crash, options, PLAN)
    assert with_fallback(options, again) == options
    plain = climbed(again, crash, options, PLAN)
    assert with_fallback(options, plain) == LaunchOptions(repack=False)
    assert next_fallback(plain, crash, options, PLAN) is None
    assert len(plain.steps) == 2


@pytest.mark.parametrize("repack", [True, False])
def test_what_was_set_of_repacking_stays_after_a_crash(repack: bool) -> None:
    options = LaunchOptions(repack=repack)
    again = climbed(Fallback(), Failure("engine_crashed", ""), options, PLAN)
    assert next_fallback(again, Failure("engine_crashed", ""), options, PLAN) is None


def test_an_instruction_that_the_processor_lacks_may_be_one_of_repacked_weights() -> None:
    illegal = Failure("device_unsupported", "", device="CPU")
    plain = climbed(Fallback(), illegal, LaunchOptions(), PLAN)
    assert with_fallback(LaunchOptions(), plain) == LaunchOptions(repack=False)
    assert next_fallback(plain, illegal, LaunchOptions(), PLAN) is None
    assert next_fallback(Fallback(), Failure("device_unsupported", ""), LaunchOptions(), PLAN) is None


def test_steps_add_up() -> None:
    fallback = climbed(Fallback(), Failure("projector_failed", ""), FOUND, PLAN)
    fallback = climbed(fallback, Failure("flash_attn_unsupported", ""), FOUND, PLAN)
    fallback = climbed(fallback, oom("CUDA0", MIB), FOUND, PLAN)
    assert with_fallback(FOUND, fallback) == LaunchOptions(mmproj_auto=False, flash_attn="off")
    assert len(fallback.steps) == 3


def test_without_a_draft_model_there_is_none_to_leave_out() -> None:
    assert without_draft(LaunchOptions(spec_type=("ngram-mod",)), Fallback()) == Fallback()
    assert without_draft(DRAFTING, Fallback()).no_draft
