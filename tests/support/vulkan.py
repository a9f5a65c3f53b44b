"""An engine with a GPU back end, on any machine: llama.cpp's Vulkan back end on Mesa's software driver (llvmpipe).

`bin/test` builds the engine, `.ci/run` installs the driver. llama.cpp leaves a software driver alone unless
GGML_VK_VISIBLE_DEVICES names it; naming it several times makes as many devices, each with buffers and an account of
memory of its own. It computes on the processor's cores, so models and prompts have to be tiny.

    with running_daemon(home, vulkan_engine.path, settings, env=vulkan_engine.environment(2)) as daemon:
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.environment import for_engines
from supervisor.llamacpp.store import EngineStore
from supervisor.system.paths import places
from tests.support.lacking import lacking
from tests.support.patience import PATIENCE

BACKEND = "vulkan"
_DRIVERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
_NO_ENGINE = "no engine with the Vulkan back end: `supervisor engine build --backend vulkan --no-use` makes one"
_NO_DRIVER = "no software driver for Vulkan: install Mesa's (Debian: mesa-vulkan-drivers)"


@dataclass(frozen=True)
class VulkanEngine:
    """A `llama-server` with the Vulkan back end, and the file that describes the software driver."""

    path: Path
    driver: Path

    def environment(self, devices: int = 1) -> dict[str, str]:
        """The variables, to be added to others, that make it see so many GPUs: `Vulkan0`, `Vulkan1`, ….

        No GPU that the machine has is among them. With 0 it sees none.
        """
        return {"VK_DRIVER_FILES": str(self.driver), "GGML_VK_VISIBLE_DEVICES": ",".join(["0"] * devices)}


def find_vulkan_engine(env: Mapping[str, str], drivers: Sequence[str] = _DRIVERS) -> VulkanEngine | str:
    """The newest Vulkan engine among those installed, or what is lacking."""
    store = EngineStore(places(env).engines)
    engine = next((store.binary(known.name) for known in store.engines() if known.backend == BACKEND), None)
    driver = next((file for folder in drivers for file in sorted(Path(folder).glob("lvp_icd*.json"))), None)
    if driver is None:
        return _NO_DRIVER
    return VulkanEngine(engine, driver) if engine else _NO_ENGINE


def listed_devices(engine: VulkanEngine, devices: int) -> str:
    """What the engine prints for `--list-devices` with so many devices."""
    answer = subprocess.run(
        [str(engine.path), "--list-devices"],
        env={**for_engines(os.environ), **engine.environment(devices)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return answer.stdout


def require_vulkan_engine() -> VulkanEngine:
    """The engine; without one that sees two devices the test is skipped, and failed under CI=true."""
    found = find_vulkan_engine(os.environ)
    if isinstance(found, str):
        lacking(found)
    listed = listed_devices(found, 2)
    if "Vulkan1:" not in listed:
        lacking(f"{found.path} does not see the software driver twice; it says: {listed[-2000:]}")
    return found


def main() -> int:
    """Say what is lacking. 1: an engine, for which the driver is here; so `bin/test` builds it."""
    found = find_vulkan_engine(os.environ)
    if isinstance(found, str):
        sys.stderr.write(f"{found}\n")
    return int(found == _NO_ENGINE)


if __name__ == "__main__":
    sys.exit(main())
