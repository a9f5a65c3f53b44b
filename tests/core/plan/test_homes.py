"""Where the projector and the draft model go if the user says so, and an engine that no device holds anything of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.memory import EstimateOptions
from supervisor.core.plan import Explicit, Placement, PlanRequest, Policy, plan
from tests.core.plan.support import GIB, fails, machine, spec_of

TWO = machine(40, 40, host=62)
BOTH = ("CUDA0", "CUDA1")
ASKED = PlanRequest(
    "drafted",
    spec_of("llama-3.3-70b"),
    EstimateOptions(),
    Explicit(ctx_size=4096, devices=BOTH),
    projector_bytes=GIB,
    draft=spec_of("llama-3.1-8b"),
)


def placed(asked: PlanRequest) -> Placement:
    found = plan(asked, TWO, (), Policy())
    assert isinstance(found, Placement), found
    return found


def homes(asked: PlanRequest) -> tuple[list[str], list[str]]:
    """Where the projector is, and the most of the draft model."""
    found = {part.name: part for part in placed(asked).parts}
    most = max(found, key=lambda name: found[name].draft_bytes)
    return [name for name, part in found.items() if part.projector_bytes], [most]


def with_homes(projector: str | None = None, draft: str | None = None, **more: object) -> PlanRequest:
    explicit = replace(ASKED.explicit, projector_device=projector, draft_device=draft, **more)  # type: ignore[arg-type]  # by name
    return replace(ASKED, explicit=explicit)


@pytest.mark.parametrize("name", [*BOTH, "CPU"])
def test_they_go_where_the_user_says(name: str) -> None:
    assert homes(with_homes(name, "CUDA0")) == ([name], ["CUDA0"])
    assert homes(with_homes("CUDA0", name)) == (["CUDA0"], [name])


def test_without_a_word_they_are_on_the_first() -> None:
    assert homes(ASKED) == (["CUDA0"], ["CUDA0"])


def test_the_engine_is_told_of_the_drafts_device() -> None:
    told = {name: placed(with_homes(draft=name)).draft_device for name in (*BOTH, "CPU")}
    assert told == {"CUDA0": "CUDA0", "CUDA1": "CUDA1", "CPU": "none"}


@pytest.mark.parametrize(
    "asked",
    [
        with_homes("CUDA1", devices=("CUDA0",), n_gpu_layers=20),
        with_homes(draft="CUDA1", devices=None),
        with_homes(draft="CUDA1", n_gpu_layers=0),
        with_homes("CUDA0", split_mode="none", main_gpu=1),
    ],
    ids=["not in the list", "no list", "no layers", "not the one that is used"],
)
def test_a_device_that_the_model_does_not_use(asked: PlanRequest) -> None:
    found = fails(asked, TWO)
    assert found.refusal is not None
    assert found.refusal.code == "device_not_listed"


def test_an_engine_without_layers_on_devices_gets_none() -> None:
    explicit = Explicit(ctx_size=4096, devices=BOTH, n_gpu_layers=0)
    assert placed(replace(ASKED, explicit=explicit)).devices == ()
