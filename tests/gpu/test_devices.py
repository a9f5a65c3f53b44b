"""Which devices a daemon sees, which of them an engine is told of, and under which names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.gpu.conftest import Benches
from tests.support.daemon import RunningDaemon
from tests.support.gpu import MIB, gpu_daemon, listed
from tests.support.planning_bench import Bench
from tests.support.scripted import ScriptedModel
from tests.support.vulkan import VulkanEngine, listed_devices

pytestmark = [pytest.mark.engine, pytest.mark.gpu]

MASK = "GGML_VK_VISIBLE_DEVICES"
SAID = "Hello from a device."


@pytest.mark.parametrize("devices", [1, 3])
def test_every_device_is_listed_with_its_memory(gpus: Benches, vulkan_engine: VulkanEngine, devices: int) -> None:
    """Older drivers say that all is free; from Mesa 25 on it is what the host has free at the moment."""
    said = re.findall(r"(Vulkan\d+): llvmpipe .*\((\d+) MiB, \d+ MiB free\)", listed_devices(vulkan_engine, devices))
    found = listed(gpus(devices).daemon)
    assert [(name, str(device["total_bytes"] // MIB)) for name, device in found.items()] == said
    assert len(said) == devices
    for device in found.values():
        assert device["backend"] == "vulkan"
        assert 256 * MIB < device["free_bytes"] <= device["total_bytes"]
        assert device["usable_bytes"] == device["free_bytes"] - 256 * MIB
        assert "llvmpipe" in device["description"]


def test_a_mask_that_hides_all_leaves_the_host(vulkan_engine: VulkanEngine, scripted_model: ScriptedModel) -> None:
    with gpu_daemon(vulkan_engine, 0) as daemon:
        assert listed(daemon) == {}
        status = daemon.load(str(scripted_model(SAID)))
        assert set(status["footprint"]) == {"CPU"}
        assert answer(daemon, status["id"]) == SAID


@pytest.mark.parametrize("name", ["Vulkan0", "Vulkan1"])
def test_an_engine_holds_memory_where_it_was_sent(gpus: Benches, scripted_model: ScriptedModel, name: str) -> None:
    daemon = gpus(2).daemon
    status = daemon.load(str(scripted_model(SAID)), device=[name])
    assert {device for device, held in status["footprint"].items() if held} == {name, "CPU"}
    assert answer(daemon, status["id"]) == SAID
    assert argument(daemon, status["id"], "--device") == name


def test_an_engine_that_sees_one_of_two_devices_calls_it_the_first(
    vulkan_engine: VulkanEngine, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    """Where Vulkan's own list tells which device is which, the others are hidden from the engine."""
    tool = vulkaninfo(tmp_path, vulkan_engine)
    with gpu_daemon(vulkan_engine, 2, PATH=f"{tool.parent}:{os.environ['PATH']}") as daemon:
        model = scripted_model(SAID)
        status = daemon.load(str(model), device=["Vulkan1"])
        name = status["id"]
        assert argument(daemon, name, "--device") == "Vulkan0"
        assert psutil.Process(daemon.model(name)["pid"]).environ()[MASK] == "0"
        assert {device for device, held in status["footprint"].items() if held} == {"Vulkan1", "CPU"}
        assert answer(daemon, name) == SAID
        both = Bench(daemon, vulkan_engine.path, tmp_path).plan(model, device=["Vulkan1", "Vulkan0"])
        assert [part["name"] for part in both["parts"]] == ["Vulkan1", "Vulkan0", "CPU"]


def test_a_device_that_is_not_there(gpus: Benches, scripted_model: ScriptedModel) -> None:
    error = gpus(1).refused(scripted_model(SAID), device=["Vulkan1"])
    assert error["code"] == "unknown_device"
    assert "Vulkan0" in error["message"]


def vulkaninfo(folder: Path, engine: VulkanEngine) -> Path:
    """A program that prints Vulkan's list as vulkaninfo does: the software driver, once, as the machine has it."""
    line = next(line for line in listed_devices(engine, 1).splitlines() if "Vulkan0:" in line)
    name = line.partition(": ")[2].rpartition(" (")[0]
    tool = folder / "bin" / "vulkaninfo"
    tool.parent.mkdir()
    tool.write_text(
        f"#!/bin/sh\ncat <<'END'\nDevices:\n========\nGPU0:\n\tdeviceType         = PHYSICAL_DEVICE_TYPE_CPU\n"
        f"\tdeviceName         = {name}\n\tdriverID           = DRIVER_ID_MESA_LLVMPIPE\n"
        "\tdeviceUUID         = 6d657361-3232-2e33-2e36-000000000000\nEND\n"
    )
    tool.chmod(0o755)
    return tool


def answer(daemon: RunningDaemon, model: str) -> str:
    found: dict[str, Any] = daemon.chat(model, "Say it.").json()
    return str(found["choices"][0]["message"]["content"])


def argument(daemon: RunningDaemon, model: str, name: str) -> str:
    """What the model's engine was given for an option."""
    argv = psutil.Process(daemon.model(model)["pid"]).cmdline()
    return argv[argv.index(name) + 1]
