"""Programs that we did not start hold memory of a GPU: before a plan, after it, and where the driver does not tell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.environment import for_engines
from tests.gpu.stage import Cast, Stage, stage
from tests.support.daemon import wait_until
from tests.support.scripted import ScriptedModel
from tests.support.vulkan import VulkanEngine

pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpus")


@pytest.fixture(scope="module")
def shown(vulkan_engine: VulkanEngine, scripted_model: ScriptedModel, heavy: Path) -> Iterator[Stage]:
    cast = Cast(heavy, scripted_model)
    cast.add("heavy", blocks=4, mib=8)
    with stage(vulkan_engine, heavy, cast.models) as found:
        yield found


@pytest.fixture(autouse=True)
def cleared(shown: Stage) -> Iterator[None]:
    yield
    shown.clear()


def free_mib(shown: Stage) -> list[int]:
    found = shown.http.get("/api/v1/devices").json()["devices"]
    return [device["free_bytes"] // MIB for device in found]


def test_what_the_driver_tells_is_planned_with(shown: Stage) -> None:
    for number in (0, 1):
        shown.gpu(number).tells()
    with shown.gpu(0).neighbour(50):
        assert free_mib(shown) == [14, 64]
        status = shown.loaded("heavy")
        assert (status["plan"]["devices"], status["fallbacks"]) == (["Vulkan1"], [])
        assert shown.gpu(0).refused == 0


def test_what_it_does_not_tell_is_found_out_by_the_load(shown: Stage) -> None:
    with shown.gpu(0).neighbour(50):
        assert free_mib(shown) == [64, 64]
        status = shown.loaded("heavy")
        assert status["plan"]["devices"] == ["Vulkan1"]
        assert len(status["fallbacks"]) == shown.gpu(0).refused == 1


def test_memory_that_goes_between_the_plan_and_the_load(shown: Stage) -> None:
    for number in (0, 1):
        shown.gpu(number).tells()
    shown.gpu(0).ambush(at_mib=1, mib=50)
    status = shown.loaded("heavy")
    assert status["plan"]["devices"] == ["Vulkan1"]
    (step,) = status["fallbacks"]
    assert "Memory ran out on Vulkan0, where a buffer of" in step


def test_another_engine_of_somebody_else(shown: Stage, vulkan_engine: VulkanEngine, heavy: Path) -> None:
    """A real neighbour, on the very same driver. It goes on, and what it gives back is used again."""
    shown.gpu(1).limit(1)
    argv: list[str | Path] = [
        vulkan_engine.path,
        "-m",
        heavy / "heavy.gguf",
        "--host",
        heavy / "other.sock",
        "--device",
        "Vulkan0",
    ]
    env = {**for_engines(os.environ), **shown.gpus.environment}
    options = ["--device", "Vulkan0", "-c", "256", "-np", "1", "-ub", "32", "-b", "32", "-fit", "off", "--no-warmup"]
    with subprocess.Popen([*argv, *options], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            wait_until(lambda: shown.gpu(0).held > 33 * MIB, "the neighbour has its weights")
            assert shown.loaded("heavy")["plan"]["devices"] == []
            assert other.poll() is None
        finally:
            other.kill()
    shown.unload("heavy")
    assert shown.loaded("heavy")["plan"]["devices"] == ["Vulkan0"]
