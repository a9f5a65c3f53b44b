"""A model larger than the host's memory: refused, or paged from its file, as the user wants it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Explicit, PlanRequest, Policy, Resident
from tests.core.plan.support import GIB, fails, machine, places, spec_of

PAGED = Policy(overcommit="mmap")
LAPTOP = machine(host=10)
ONE_8 = machine(8, host=10)


def request(name: str = "gpt-oss-20b", explicit: Explicit | None = None) -> PlanRequest:
    return PlanRequest(name, spec_of(name), EstimateOptions(), explicit or Explicit())


def test_without_it_such_a_model_is_refused_with_a_way_out() -> None:
    found = fails(request(), LAPTOP)
    assert "With weights mapped from the file (overcommit: mmap) it would start, and be slow." in found.hints


def test_weights_that_have_no_room_are_paged_and_the_plan_says_how_slow_it_will_be() -> None:
    found = places(request(), LAPTOP, policy=PAGED)
    host = found.parts[-1]
    assert found.devices == ()
    assert found.paged_bytes == host.paged_bytes > GIB
    assert host.left_bytes == 0
    assert host.total_bytes == 10 * GIB
    assert host.weights_bytes > found.paged_bytes
    assert not found.options.repack
    said = next(why for why in found.why if "mapped from the file" in why)
    assert f"{host.paged_bytes / GIB:.1f} GiB of the weights have no room in memory" in said
    assert "s per token from a disk that reads 2 GiB/s" in said
    assert found.to_json()["paged_bytes"] == found.paged_bytes


def test_of_experts_the_share_that_is_used_is_read_for_a_token() -> None:
    """4 of 32 experts: an eighth of what has no room."""
    found = places(request(), LAPTOP, policy=PAGED)
    seconds = found.paged_bytes / 8 / (2 * GIB)
    assert any(f"Expect about {seconds:.1g} s per token" in why for why in found.why)
    dense = places(request("llama-3.1-8b"), machine(host=4), policy=PAGED)
    assert any(f"Expect about {dense.paged_bytes / (2 * GIB):.1g} s per token" in why for why in dense.why)


def test_nothing_is_paged_that_fits() -> None:
    assert places(request(), machine(host=60), policy=PAGED) == places(request(), machine(host=60))


def test_devices_are_filled_first() -> None:
    found = places(request(), machine(6, host=4), policy=PAGED)
    assert found.devices == ("CUDA0",)
    assert found.parts[0].left_bytes < GIB
    assert found.paged_bytes > GIB


def test_an_idle_engine_leaves_before_anything_is_paged() -> None:
    other = Resident(7, "other", {"CPU": 9 * GIB}, evictable=True, idle_seconds=60)
    found = places(request(), machine(host=20), [other], PAGED)
    assert found.evict == (7,)
    assert found.paged_bytes == 0


def test_caches_and_buffers_have_to_fit_all_the_same() -> None:
    found = fails(request(explicit=Explicit(ctx_size=131072)), machine(host=1), policy=PAGED)
    assert found.shortages


@pytest.mark.parametrize(
    ("explicit", "pages"),
    [
        (Explicit(overcommit="mmap"), True),
        (Explicit(overcommit="mmap", mapped=False), False),
        (Explicit(fit=True), True),
        (Explicit(overcommit="off"), False),
    ],
)
def test_a_load_may_say_it_for_itself(explicit: Explicit, pages: bool) -> None:
    policy = PAGED if explicit.overcommit == "off" else Policy()
    if pages:
        assert places(request(explicit=explicit), LAPTOP, policy=policy).paged_bytes > 0
    else:
        assert fails(request(explicit=explicit), LAPTOP, policy=policy).shortages


def test_what_llama_server_is_to_decide_is_said() -> None:
    said = places(request(explicit=Explicit(fit=True)), ONE_8).why[-1]
    assert said.startswith("fit is on: llama-server decides by itself on layers, split and context")
    assert all("fit is on" not in why for why in places(request(), ONE_8).why)


def test_a_paged_engine_takes_what_is_left_and_no_more_of_the_host() -> None:
    """So that the next model is planned beside what it holds, and the watch allows what it was meant to hold."""
    found = places(request(), LAPTOP, policy=PAGED)
    paged = Resident(1, "paged", found.used_bytes)
    assert found.used_bytes["CPU"] == 10 * GIB
    fails(replace(request("llama-3.1-8b"), model="next"), LAPTOP, [paged])
