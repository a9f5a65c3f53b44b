"""The reasons of a plan, word by word, and bounds that are met to the byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Budgets, DoesNotFit, Explicit, PlanRequest, Policy, Resident, plan
from supervisor.core.plan.why import gib, listed
from tests.core.plan.support import GIB, machine, places, spec_of

NAME = "llama-3.1-8b"
SLOTS = "4 slots share the context: one request may use all {} tokens, if others use few."
FIXED = Explicit(ctx_size=4096)
ASKED = "The context of 4,096 tokens is the one that was asked for."


def asked(explicit: Explicit | None = None, name: str = NAME) -> PlanRequest:
    return PlanRequest(name, spec_of(name), explicit=explicit or Explicit())


GROWN = "The context grew from the wanted 32,768 to {} tokens; 25% of what was free is left free."
SMALL = "The context is {} tokens: the 32,768 that are wanted do not fit."


@pytest.mark.parametrize(
    ("there", "explicit", "where", "context"),
    [
        (machine(79, host=62), FIXED, ["All 33 layers are on CUDA0."], ASKED),
        (machine(5, 5, host=62), FIXED,
         ["All 33 layers are on CUDA0 and CUDA1.", "With one device, 181 MiB would find no place."], ASKED),
        (machine(3, 3, 3, 3, host=1), FIXED,
         ["All 33 layers are on CUDA0, CUDA1 and CUDA2.", "With 2 devices, 411 MiB would find no place."], ASKED),
        (machine(5, host=62), FIXED,
         ["31 of 33 layers are on CUDA0, the most that fit; the others are on the CPU."], ASKED),
        (machine(79, host=62), replace(FIXED, n_gpu_layers=20),
         ["20 of 33 layers are on CUDA0; the others are on the CPU."], ASKED),
        (machine(host=62), FIXED, ["All of it is on the CPU."], ASKED),
        (machine(0.3, host=62), FIXED, ["Nothing of it fits on a device: all of it is on the CPU."], ASKED),
        (machine(79, host=62), None, ["All 33 layers are on CUDA0."], "The context is the native one, 131,072 tokens."),
        (machine(6, host=62), None, ["All 33 layers are on CUDA0."], SMALL.format("10,752")),
        (machine(12, host=62), None, ["All 33 layers are on CUDA0."], GROWN.format("52,736")),
        (machine(host=62), None, ["All of it is on the CPU."],
         "The context is the wanted one, 32,768 tokens; on the CPU it does not grow towards 131,072."),
    ],
)  # fmt: skip
def test_where_it_is_and_with_which_context(
    there: Budgets, explicit: Explicit | None, where: list[str], context: str
) -> None:
    found = places(asked(explicit), there)
    assert list(found.why[:-1]) == [*where, context]
    assert found.why[-1] == SLOTS.format(f"{found.estimate.n_ctx_seq:,}")


def test_experts_on_the_host() -> None:
    moe = places(asked(FIXED, "qwen3-30b-a3b"), machine(8, host=62))
    assert moe.why[1] == f"The experts of the first {moe.n_cpu_moe} layers are on the CPU, the fewest that will do."
    told = places(asked(replace(FIXED, n_cpu_moe=48), "qwen3-30b-a3b"), machine(30, host=62))
    assert "The experts of the first 48 layers are on the CPU." in told.why


def test_who_has_to_leave() -> None:
    old = Resident(3, "old", {"CUDA0": 8 * GIB}, evictable=True, idle_seconds=61.4)
    found = places(asked(FIXED), machine(10, host=2), [old])
    assert found.evict == (3,)
    left = "Engine 3 (old), idle for 61 s, must leave first: without its memory this does not fit."
    assert [why for why in found.why if "Engine" in why] == [left]
    assert not any("Engine" in why for why in places(asked(FIXED), machine(20, host=2), [old]).why)


def test_a_smaller_cache_type() -> None:
    small = "The cache is q8_0: with f16 the wanted context does not fit on devices alone."
    policy = Policy(context_target=16384, context_min=16384, kv_types=("f16", "q8_0"))
    assert small in places(asked(), machine(6.2, host=62), policy=policy).why
    assert not any("cache is" in why for why in places(asked(), machine(12, host=62), policy=policy).why)


def test_what_was_asked_or_learned_besides() -> None:
    drafted = replace(asked(FIXED), draft=spec_of(NAME))
    assert "All of the draft model is on the first device." in places(drafted, machine(30, host=62)).why
    assert "The draft model is on the CPU." in places(drafted, machine(host=62)).why
    short = replace(asked(FIXED), short={"CUDA0": 5 << 20, "CPU": 7 << 20})
    kept = "{} MiB more are kept free on {}, because an earlier start ran out of memory there."
    assert places(short, machine(30, host=62)).why[-2:] == (kept.format(7, "CPU"), kept.format(5, "CUDA0"))
    by_itself = places(asked(replace(FIXED, fit=True)), machine(30, host=62)).why[-1]
    assert by_itself.startswith("fit is on: llama-server decides by itself on layers, split and context; ")
    own = replace(asked(FIXED), options=EstimateOptions(parallel=2))
    assert (
        "Each of 2 slots has 2,048 tokens of its own; one request gets no more." in places(own, machine(30, host=9)).why
    )


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 MiB"), (1, "1 MiB"), (1 << 20, "1 MiB"), ((1 << 20) + 1, "2 MiB"), (GIB - 1, "1024 MiB"),
     (GIB, "1.0 GiB"), (GIB * 5 // 4, "1.2 GiB")],
)  # fmt: skip
def test_a_shortage_is_never_nothing(size: int, shown: str) -> None:
    assert gib(size) == shown


def test_names_in_a_row() -> None:
    assert [listed(names) for names in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize("there", [machine(79, host=62), machine(5, 5, host=62), machine(host=62)])
def test_the_host_is_filled_to_the_last_byte(there: Budgets) -> None:
    request = asked(replace(FIXED, n_gpu_layers=33 if there.devices else 0))
    used = places(request, there).used_bytes["CPU"]

    def answer(size: int) -> bool:
        budgets = replace(there, host=replace(there.host, usable_bytes=size))
        return not isinstance(plan(request, budgets, (), Policy()), DoesNotFit)

    assert answer(used)
    assert not answer(used - 1)
