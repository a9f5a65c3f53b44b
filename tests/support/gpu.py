"""Daemons that drive an engine with a GPU back end: Vulkan on Mesa's software driver, on as many devices as wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.daemon import RunningDaemon, Settings, running_daemon, scratch_home
from tests.support.planning_bench import Bench
from tests.support.vulkan import VulkanEngine

MIB = 1 << 20
DRIVER = {
    "GGML_VK_DISABLE_FUSION": "1",
    "LP_NUM_THREADS": "2",
    "MESA_SHADER_CACHE_DIR": str(Path.home() / ".cache"),
}
"""Mesa 22.3 crashes in every fourth start at shaders of fused operations, and more often with one thread; of 24 starts
without them none did. Compiled shaders are kept for the next daemon, whose home is another."""


@contextlib.contextmanager
def gpu_daemon(
    engine: VulkanEngine, devices: int, settings: Settings = None, **variables: str
) -> Iterator[RunningDaemon]:
    """A daemon on a machine with so many GPUs: `Vulkan0`, `Vulkan1`, …."""
    env = {**DRIVER, **engine.environment(devices), **variables}
    with scratch_home() as home, running_daemon(home, engine.path, settings, env=env) as daemon:
        yield daemon


@contextlib.contextmanager
def gpu_bench(engine: VulkanEngine, devices: int, folder: Path, settings: Settings = None) -> Iterator[Bench]:
    """Such a daemon as a bench for plans."""
    with gpu_daemon(engine, devices, settings) as daemon:
        yield Bench(daemon, engine.path, folder)


def listed(daemon: RunningDaemon) -> dict[str, dict[str, Any]]:
    """What the daemon says of its devices, by name."""
    found = daemon.http.get("/api/v1/devices").json()
    return {device["name"]: device for device in found["devices"]}
