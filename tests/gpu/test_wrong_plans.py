"""Plans that are wrong on purpose: what was learned is too small, or the configuration names more than there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.engine_output.footprint import HOST
from supervisor.core.learn.history import Observation
from supervisor.core.learn.identity import model_identity
from supervisor.files.model_file import open_model
from supervisor.store import Database, Footprints
from supervisor.system.paths import places
from tests.gpu.stage import Cast, Stage, stage
from tests.support.daemon import environment, wait_until
from tests.support.scripted import ScriptedModel
from tests.support.vulkan import VulkanEngine

pytestmark = pytest.mark.gpu
MIB = 1 << 20
WIDE: dict[str, Any] = {"ubatch_size": 512, "batch_size": 512}


class Store:
    """What the daemon has learned of one model."""

    def __init__(self, shown: Stage, vulkan: VulkanEngine, model: Path) -> None:
        self._file = places(environment(shown.daemon.home, vulkan.path)).database
        self._model = model_identity(open_model(model).header)

    def all(self) -> tuple[Observation, ...]:
        with Database.read(self._file) as database:
            return Footprints(database).find(self._model)

    def first(self) -> Observation:
        """The first one, as soon as it is written."""
        wait_until(lambda: bool(self.all()), "the start is kept")
        return self.all()[-1]

    def belittle(self, true: Observation) -> None:
        """Write down that the same start took next to nothing for computing on its devices."""
        small = tuple(
            one if one.name == HOST else replace(one, compute_bytes=MIB // 4) for one in true.footprint.devices
        )
        with Database.open(self._file) as database:
            Footprints(database).record(replace(true, footprint=replace(true.footprint, devices=small)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpus")


@pytest.fixture(scope="module")
def shown(vulkan_engine: VulkanEngine, scripted_model: ScriptedModel, folder: Path) -> Iterator[Stage]:
    cast = Cast(folder, scripted_model)
    cast.add("free", blocks=4, mib=4, **WIDE)
    cast.add("long", blocks=4, mib=2, n_ctx=1 << 19, ctx_size=None, device=["Vulkan0"], batch_size=128, ubatch_size=128)
    cast.add("large", blocks=4, mib=20)
    settings: dict[str, Any] = {
        "devices": {
            "reserve_mib": {"vulkan": 0},
            "engine_reserve_mib": {"vulkan": 0},
            "limit_mib": {"vulkan": 1 << 20},
        }
    }
    with stage(vulkan_engine, folder, cast.models, **settings) as found:
        yield found


@pytest.fixture(autouse=True)
def cleared(shown: Stage) -> Iterator[None]:
    yield
    shown.clear()


def refused(shown: Stage) -> int:
    return shown.gpu(0).refused + shown.gpu(1).refused


def tighten(shown: Stage, plan: dict[str, Any]) -> None:
    """Leave each device what the model needs there without half of its compute buffer."""
    part = next(part for part in plan["parts"] if part["name"] != HOST)
    assert part["compute_bytes"] > 4 * MIB, "else nothing is cut"
    for number in (0, 1):
        shown.gpu(number).limit((part["total_bytes"] - part["compute_bytes"] // 2) // MIB)


def test_what_was_learned_too_small_is_found_out_and_learned_anew(
    shown: Stage, vulkan_engine: VulkanEngine, folder: Path
) -> None:
    """A context grows into memory that the compute buffer wants."""
    for number in (0, 1):
        shown.gpu(number).limit(256)
    store = Store(shown, vulkan_engine, folder / "long.gguf")
    plan = shown.loaded("long")["plan"]
    true = store.first()
    shown.unload("long")
    store.belittle(true)
    status = shown.loaded("long")
    assert status["fallbacks"], "the engine ran out of memory"
    assert all("Memory ran out on" in step for step in status["fallbacks"])
    assert refused(shown) >= 1
    shown.assert_serving("long")
    shown.unload("long")
    before = refused(shown)
    again = shown.loaded("long")
    assert (again["fallbacks"], refused(shown)) == ([], before), "the next plan does not go by it any more"
    assert again["plan"]["ctx_size"] == plan["ctx_size"]
    wait_until(lambda: true.footprint in [one.footprint for one in store.all()], "its own account is kept again")


def test_what_was_learned_does_not_make_fit_what_the_estimate_refuses(
    shown: Stage, vulkan_engine: VulkanEngine, folder: Path
) -> None:
    store = Store(shown, vulkan_engine, folder / "free.gguf")
    plan = shown.loaded("free")["plan"]
    true = store.first()
    shown.unload("free")
    store.belittle(true)
    tighten(shown, plan)
    status = shown.loaded("free")
    assert (status["plan"]["devices"], status["fallbacks"], refused(shown)) == ([], [], 0)


def test_a_limit_beyond_the_device_makes_it_no_larger(shown: Stage) -> None:
    plan = shown.loaded("large")["plan"]
    assert plan["devices"] == ["Vulkan0", "Vulkan1"], "80 MiB of weights on devices of 64 MiB"
    assert refused(shown) == 0
    shown.assert_serving("large")


def test_without_a_reserve_a_device_that_holds_the_plan_just_so(shown: Stage) -> None:
    """Nothing is kept back: the plan is an upper bound by itself."""
    planned = shown.http.post("/api/v1/plan", json={"target": "free"}).json()
    part = next(part for part in planned["parts"] if part["name"] != HOST)
    for number in (0, 1):
        shown.gpu(number).limit(-(-part["total_bytes"] // MIB))
    status = shown.loaded("free")
    assert (status["fallbacks"], refused(shown)) == ([], 0)
    assert len(status["plan"]["devices"]) == 1
    shown.assert_serving("free")
