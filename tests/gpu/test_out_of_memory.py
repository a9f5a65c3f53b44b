"""The memory of a GPU runs out while a model is loaded: which failure it is, and what is tried instead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu.stage import Cast, Stage, stage
from tests.support.projector import write_projector
from tests.support.scripted import ScriptedModel
from tests.support.vulkan import VulkanEngine

pytestmark = pytest.mark.gpu
FULL = 64  # MiB: all that a device has
MIB = 1 << 20


@pytest.fixture(scope="module")
def shown(
    vulkan_engine: VulkanEngine, scripted_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """One daemon for all scenes."""
    folder = tmp_path_factory.mktemp("gpus")
    cast = Cast(folder, scripted_model)
    heavy = cast.add("heavy", blocks=4, mib=8)
    cast.add("twin", blocks=4, mib=8)
    cast.add("large", blocks=4, mib=20)
    cast.add("fixed", blocks=4, mib=8, device=["Vulkan0"], n_gpu_layers=99)
    cast.add("long", blocks=8, n_ctx=32768, ctx_size=None)
    cast.add("longer", blocks=8, n_ctx=1 << 18, ctx_size=None)
    cast.add("busy", blocks=4, mib=4, ubatch_size=512, batch_size=512, device=["Vulkan0"], n_gpu_layers=99)
    cast.add("drafted", spec_draft_model=str(heavy), spec_type=["draft-simple"])
    cast.add("seeing", mmproj=str(write_projector(folder / "projector.gguf", 128, inner=1 << 17)))
    cast.add("wide", blocks=2, ctx_size=8192, env={"GGML_VK_FORCE_MAX_BUFFER_SIZE": str(400 << 10)})
    cast.add("fitted", blocks=8, ctx_size=16384, fit="on", env={"GGML_VK_FORCE_MAX_BUFFER_SIZE": str(700 << 10)})
    cast.add("stuck")
    with stage(vulkan_engine, folder, cast.models, engine={"stall_timeout": 20}) as found:
        yield found


@pytest.fixture(autouse=True)
def cleared(shown: Stage) -> Iterator[None]:
    yield
    shown.clear()


def held_free(status: dict[str, Any]) -> list[str]:
    """The devices on which more was kept free, in order."""
    assert all("Memory ran out on" in step for step in status["fallbacks"]), status["fallbacks"]
    return [step.split()[4].rstrip(",:") for step in status["fallbacks"]]


def test_the_weights_find_no_room_and_go_to_another_device(shown: Stage) -> None:
    with shown.gpu(0).neighbour(50):
        status = shown.loaded("heavy")
        assert held_free(status) == ["Vulkan0"]
        assert "where a buffer of 32 MiB was wanted" in status["fallbacks"][0]
        assert status["plan"]["devices"] == ["Vulkan1"]
        shown.assert_serving("heavy")


def test_the_weights_of_the_second_device_find_no_room(shown: Stage) -> None:
    with shown.gpu(1).neighbour(50):
        status = shown.loaded("large")
        assert held_free(status) == ["Vulkan1"]
        assert status["plan"]["devices"] == ["Vulkan0"]
        assert 0 < status["plan"]["n_gpu_layers"] < 5, "what is left is on the host"


def test_the_cache_finds_no_room_and_the_context_shrinks(shown: Stage) -> None:
    shown.gpu(0).limit(512)
    shown.gpu(1).limit(8)
    planned = shown.http.post("/api/v1/plan", json={"target": "longer"}).json()
    part = next(part for part in planned["parts"] if part["name"] == "Vulkan0")
    room = (part["weights_bytes"] + part["kv_bytes"]) // MIB
    with shown.gpu(0).neighbour(512 - room + 1):
        status = shown.loaded("longer")
        assert held_free(status) == ["Vulkan0"]
        assert status["plan"]["devices"] == ["Vulkan0"]
        assert status["plan"]["ctx_size"] < planned["ctx_size"]
        assert status["plan"]["n_gpu_layers"] == planned["n_gpu_layers"]


def test_the_compute_buffer_finds_no_room_and_what_is_set_stays(shown: Stage) -> None:
    with shown.gpu(0).neighbour(44):
        answer = shown.load("busy")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (507, "does_not_fit")
        assert "Memory ran out on Vulkan0" in error["message"]
        assert "MiB missing" in error["message"]
    shown.assert_serving("busy")


@pytest.mark.parametrize(("model", "free"), [("drafted", 20), ("seeing", 14)])
def test_a_further_model_finds_no_room(shown: Stage, model: str, free: int) -> None:
    with shown.gpu(0).neighbour(FULL - free), shown.gpu(1).neighbour(FULL - free):
        status = shown.loaded(model)
        assert held_free(status) == ["Vulkan0", "Vulkan1"]
        assert status["plan"]["devices"] == []


def test_a_refusal_holds_only_as_long_as_memory_lacks(shown: Stage) -> None:
    with shown.gpu(0).neighbour(50):
        for _ in range(2):
            before = shown.gpu(0).refused
            error = shown.chat("fixed").json()["error"]
            assert error["code"] == "does_not_fit"
            assert "Without a list of devices or a split it would fit." in error["message"]
            assert shown.gpu(0).refused == before + 1, "every request tries anew"
    shown.assert_serving("fixed")
    assert shown.daemon.model("fixed")["fallbacks"] == []


def test_full_devices_are_given_up_one_by_one(shown: Stage) -> None:
    with shown.gpu(0).neighbour(FULL - 6), shown.gpu(1).neighbour(FULL - 6):
        status = shown.loaded("long")
        assert set(held_free(status)) == {"Vulkan0", "Vulkan1"}
        assert status["plan"]["devices"] == []


def test_two_loads_at_the_same_moment(shown: Stage) -> None:
    with shown.gpu(0).neighbour(20), shown.gpu(1).neighbour(20):
        answers: dict[str, int] = {}
        loads = [
            threading.Thread(target=lambda name=name: answers.update({name: shown.load(name).status_code}))
            for name in ("heavy", "twin", "large")
        ]
        for load in loads:
            load.start()
        for load in loads:
            load.join()
        assert answers == {"heavy": 200, "twin": 200, "large": 200}
        assert shown.gpu(0).refused + shown.gpu(1).refused > 0


@pytest.mark.parametrize("model", ["wide", "fitted"])
def test_a_buffer_is_larger_than_the_driver_allows(shown: Stage, model: str) -> None:
    """With `fit: on` llama-server aborts over a tensor before it has allocated anything."""
    status = shown.loaded(model)
    assert set(held_free(status)) == {"Vulkan0", "Vulkan1"}
    assert status["plan"]["devices"] == []


def test_a_driver_that_never_returns_is_a_stalled_engine(shown: Stage) -> None:
    shown.gpu(0).get_stuck()
    shown.gpu(1).get_stuck()
    answer = shown.load("stuck")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "engine_stalled")
    assert any("loading model" in line for line in error["log_lines"])
    shown.gpus.reset()
    shown.assert_serving("stuck")
