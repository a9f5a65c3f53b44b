"""The places where a probe looks, and its tools: the edges, so that tests can hand in their own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_HELPER = Path(__file__).with_name("nvml_helper.py")


@dataclass(frozen=True)
class Surroundings:
    """The machine as the probes reach it.

    Attributes:
        env: whose masks hold and whose PATH is searched.
        sysfs, devices, procfs: the kernel's file systems.
        system: as `sys.platform`.
        limit_s: what one probe may take.
        nvml: the command of the NVML helper.
    """

    env: Mapping[str, str]
    sysfs: Path = Path("/sys")
    devices: Path = Path("/dev")
    procfs: Path = Path("/proc")
    system: str = sys.platform
    limit_s: float = 20.0
    nvml: tuple[str, ...] = field(default=(sys.executable, "-P", str(_HELPER)))

    def tool(self, name: str) -> str | None:
        """Return the path of the program of that name on PATH."""
        return shutil.which(name, path=self.env.get("PATH"))
