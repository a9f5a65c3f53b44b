"""The engine with a GPU back end that tests drive: what it sees, and that nobody else comes to use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.llamacpp.locate import locate
from supervisor.llamacpp.store import EngineStore, Manifest
from supervisor.system.paths import Places
from supervisor.system.paths import places as places_of
from tests.llamacpp.fakes import make_server
from tests.support.vulkan import VulkanEngine, find_vulkan_engine, listed_devices


def put(store: EngineStore, backend: str, made_at: int) -> Path:
    """Place an engine of this back end; its binary."""
    folder = store.new_scratch("engine") / "engine"
    make_server(folder / "bin")
    manifest = Manifest(f"b11434-{backend}", 11434, None, backend, "registry", "", made_at)
    return store.binary(store.place(folder, manifest).name)


def drivers(folder: Path, *names: str) -> list[str]:
    """A folder that holds driver files of these names."""
    for name in names:
        (folder / name).write_text("{}", encoding="utf-8")
    return [str(folder)]


def test_the_newest_vulkan_engine_with_the_software_driver(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    store = EngineStore(places_of(env).engines)
    put(store, "cpu", 3)
    put(store, "vulkan", 1)
    newest = put(store, "vulkan", 2)
    found = find_vulkan_engine(env, drivers(tmp_path, "intel_icd.x86_64.json", "lvp_icd.x86_64.json"))
    assert found == VulkanEngine(newest, tmp_path / "lvp_icd.x86_64.json")


def test_what_is_lacking_is_named(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    store = EngineStore(places_of(env).engines)
    put(store, "cpu", 1)
    assert "mesa-vulkan-drivers" in str(find_vulkan_engine(env, drivers(tmp_path, "radeon_icd.json")))
    assert "engine build --backend vulkan" in str(find_vulkan_engine(env, drivers(tmp_path, "lvp_icd.json")))


@pytest.mark.gpu
@pytest.mark.parametrize("devices", [0, 1, 3])
def test_it_sees_as_many_gpus_as_wanted(vulkan_engine: VulkanEngine, devices: int) -> None:
    listed = listed_devices(vulkan_engine, devices)
    assert [line.strip().partition(":")[0] for line in listed.splitlines() if "MiB free" in line] == [
        f"Vulkan{number}" for number in range(devices)
    ]


@pytest.mark.gpu
def test_no_other_test_drives_it(vulkan_engine: VulkanEngine, engine_binary: Path) -> None:
    assert engine_binary != vulkan_engine.path


def test_one_installed_beside_another_is_not_used(places: Places) -> None:
    """As `bin/test` does: the engine in use was chosen, the newer one was not."""
    store = EngineStore(places.engines)
    cpu = put(store, "cpu", 1)
    store.choose("b11434-cpu")
    put(store, "vulkan", 2)
    assert locate(places, {"HOME": os.devnull}, None).path == cpu
