"""A plan's figures, to the byte: what the estimate says of that which the engine will be told, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Budgets, DoesNotFit, Explicit, PlanRequest, Policy, forecast, plan
from supervisor.core.plan.contexts import contexts_of
from tests.core.plan.support import GIB, machine, places, spec_of
from tests.core.plan.support import _taken as sizes_of

CTX = Explicit(ctx_size=4096)


def request(name: str, **options: object) -> PlanRequest:
    return PlanRequest(name, spec_of(name), EstimateOptions(**options), CTX)  # type: ignore[arg-type]  # by name


PLAIN = request("llama-3.1-8b")
DRAFTED = replace(request("llama-3.3-70b"), draft=spec_of("llama-3.1-8b"), projector_bytes=GIB)
ONE, TWO, NONE = machine(79, host=62), machine(40, 40, host=62), machine(host=120)


@pytest.mark.parametrize("asked", [PLAIN, DRAFTED, replace(PLAIN, projector_bytes=GIB)])
@pytest.mark.parametrize("there", [ONE, TWO, NONE], ids=["one", "two", "host"])
def test_every_byte_of_a_plan_is_accounted_for(asked: PlanRequest, there: Budgets) -> None:
    found = places(asked, there)
    by_name = {budget.name: budget for budget in (*there.devices, there.host)}
    assert found.used_bytes == sizes_of(found, asked, by_name)


@pytest.mark.parametrize(("there", "name"), [(ONE, "CUDA0"), (NONE, "CPU")])
def test_a_model_fits_into_exactly_what_it_takes(there: Budgets, name: str) -> None:
    used = places(PLAIN, there).used_bytes[name]

    def answer(size: int) -> bool:
        budgets = replace(
            there,
            devices=tuple(replace(one, usable_bytes=size) for one in there.devices),
            host=there.host if there.devices else replace(there.host, usable_bytes=size),
        )
        asked = replace(PLAIN, explicit=replace(CTX, n_gpu_layers=33) if there.devices else CTX)
        return not isinstance(plan(asked, budgets, (), Policy()), DoesNotFit)

    assert answer(used)
    assert not answer(used - 1)


def test_a_forecast_says_why_the_engine_would_not_start() -> None:
    """As a plan does: a draft model that was trained for no context."""
    refused = replace(PLAIN, draft=replace(spec_of("llama-3.1-8b"), n_ctx_train=0))
    found = forecast(refused, ONE, (), Policy(), (1, 1))
    planned = plan(refused, ONE, (), Policy())
    assert isinstance(planned, DoesNotFit)
    assert planned.refusal
    assert found.family is None
    assert found.reason
    assert found.reason in planned.message


def said(asked: PlanRequest, policy: Policy | None = None) -> str:
    return " ".join(places(asked, ONE, policy=policy).why)


def test_slots_are_told_of_where_there_are_several() -> None:
    for alone in (request("llama-3.1-8b", parallel=1), request("llama-3.1-8b", parallel=1, kv_unified=True)):
        assert "slots" not in said(alone)
    assert "2 slots share the context" in said(request("llama-3.1-8b", parallel=2, kv_unified=True))
    assert "Each of 2 slots has" in said(request("llama-3.1-8b", parallel=2))


def test_a_context_may_be_as_small_as_the_policy_says() -> None:
    """One token, too: an engine makes of it what it needs."""
    found = contexts_of(replace(PLAIN, explicit=Explicit()), Policy(context_min=1, context_target=1))
    assert (found.floor, found.wanted) == (1, 1)
    found = contexts_of(replace(PLAIN, explicit=Explicit()), Policy(context_min=0, context_target=0))
    assert (found.floor, found.wanted) == (1, 1)


@pytest.mark.parametrize(
    ("sizes", "device"), [((12, 40), 0), ((40, 12), 1), ((4, 12, 40), 1), ((40, 20, 12), 2), ((12, 20, 40), 0)]
)
def test_of_devices_with_room_the_one_with_the_least_is_taken(sizes: tuple[int, ...], device: int) -> None:
    """The larger ones stay free for larger models."""
    small = replace(request("llama-3.1-8b", cache_type_k="q8_0"), explicit=Explicit(ctx_size=512))
    assert places(small, machine(*sizes, host=62)).devices == (f"CUDA{device}",)
