"""Who leaves when a GPU is full and its driver says that it is free: what our engines hold is counted by us."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu.stage import Cast, Stage, stage
from tests.support.daemon import wait_until
from tests.support.scripted import ScriptedModel
from tests.support.vulkan import VulkanEngine

pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture(scope="module")
def shown(
    vulkan_engine: VulkanEngine, scripted_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("gpus")
    cast = Cast(folder, scripted_model)
    for name in ("one", "two", "three"):
        cast.add(name, blocks=4, mib=10)
    cast.add("here", blocks=4, mib=10, device=["Vulkan1"])
    cast.add("twins", blocks=4, replicas=2)
    with stage(vulkan_engine, folder, cast.models, placement={"partial_offload": False}) as found:
        yield found


@pytest.fixture(autouse=True)
def cleared(shown: Stage) -> Iterator[None]:
    yield
    assert [shown.gpu(number).refused for number in (0, 1)] == [0, 0], "no engine was started that had no room"
    shown.clear()


def state(shown: Stage, model: str) -> str:
    found: str = shown.daemon.model(model)["state"]
    return found


def states(shown: Stage, model: str) -> list[str]:
    return [engine["state"] for engine in shown.daemon.model(model)["engines"]]


def device_of(status: dict[str, Any]) -> str:
    (name,) = status["plan"]["devices"]
    assert isinstance(name, str)
    return name


def test_models_go_beside_one_another_then_one_leaves(shown: Stage) -> None:
    statuses = {name: shown.loaded(name) for name in ("one", "two")}
    on = {device_of(status): name for name, status in statuses.items()}
    assert set(on) == {"Vulkan0", "Vulkan1"}
    assert all(40 * MIB < shown.gpu(number).held < 64 * MIB for number in (0, 1))
    gone = on.pop(device_of(shown.loaded("three")))
    (kept,) = on.values()
    assert (state(shown, gone), state(shown, kept)) == ("unloaded", "ready")
    assert shown.daemon.model(kept)["pid"] == statuses[kept]["pid"]
    shown.assert_serving(kept)


def test_only_the_device_that_is_wanted_is_cleared(shown: Stage) -> None:
    statuses = {name: shown.loaded(name) for name in ("one", "two")}
    on = {device_of(status): name for name, status in statuses.items()}
    assert device_of(shown.loaded("here")) == "Vulkan1"
    assert (state(shown, on["Vulkan0"]), state(shown, on["Vulkan1"])) == ("ready", "unloaded")


def test_replicas_spread_although_one_device_would_do(shown: Stage) -> None:
    shown.loaded("twins")
    wait_until(lambda: states(shown, "twins") == ["ready", "ready"], "both replicas are ready")
    assert all(4 * MIB < shown.gpu(number).held < 32 * MIB for number in (0, 1))


def test_a_pinned_model_stays_and_the_answer_has_the_numbers(shown: Stage) -> None:
    on = {}
    for name in ("one", "two"):
        on[device_of(shown.loaded(name))] = name
        shown.http.post("/api/v1/models/pin", json={"model": name}).raise_for_status()
    answer = shown.load("here")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (507, "does_not_fit")
    assert "Vulkan1: 4" in error["message"]
    assert "MiB missing" in error["message"]
    assert on["Vulkan1"] in error["message"]
    assert [state(shown, name) for name in ("one", "two")] == ["ready", "ready"]
    shown.assert_serving("one")
