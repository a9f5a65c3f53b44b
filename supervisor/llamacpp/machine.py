"""Survey this machine for what matters when choosing and building an engine."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.environment import for_engines
from supervisor.errors import UsageError

BACKENDS = ("cpu", "cuda", "hip", "vulkan", "metal")
AUTO = "auto"
_CUDA_VERSION = re.compile(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)")  # since driver 610 with UMD
_CAPABILITIES = ("--query-gpu=compute_cap", "--format=csv,noheader")
_CAPABILITY = re.compile(r"^[ \t]*(\d{1,3})\.(\d)[ \t]*$", re.MULTILINE)
_SMI_SECONDS = 20


@dataclass(frozen=True)
class Machine:
    """Facts, no choices. `cuda` is the newest CUDA version that the NVIDIA driver takes, None without a driver.

    `cuda_architectures` are those of the GPUs that the driver sees, as CMAKE_CUDA_ARCHITECTURES has them.
    """

    system: str
    architecture: str
    nvcc: str | None = None
    cuda: tuple[int, int] | None = None
    cuda_architectures: tuple[str, ...] = ()
    hipcc: str | None = None
    amd_gpu: bool = False
    vulkan_gpu: bool = False


def survey(env: Mapping[str, str]) -> Machine:
    """Look at this machine; starts `nvidia-smi` where there is one."""
    path = env.get("PATH")
    rocm = Path(env.get("ROCM_PATH") or "/opt/rocm") / "bin"
    cuda_home = Path(env.get("CUDA_HOME") or env.get("CUDA_PATH") or "/usr/local/cuda") / "bin"
    return Machine(
        system=sys.platform,
        architecture=platform.machine(),
        nvcc=shutil.which("nvcc", path=path) or shutil.which("nvcc", path=str(cuda_home)),
        cuda=parse_driver_cuda(_smi(env)),
        cuda_architectures=parse_architectures(_smi(env, *_CAPABILITIES)),
        hipcc=shutil.which("hipcc", path=path) or shutil.which("hipcc", path=str(rocm)),
        amd_gpu=Path("/dev/kfd").exists(),
        vulkan_gpu=any(Path("/dev/dri").glob("renderD*")) and find_library("vulkan") is not None,
    )


def parse_driver_cuda(text: str) -> tuple[int, int] | None:
    """Return the CUDA version in the head of `nvidia-smi`'s table."""
    found = _CUDA_VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def parse_architectures(text: str) -> tuple[str, ...]:
    """Return the architectures of `nvidia-smi --query-gpu=compute_cap`, each once, the oldest first.

    Drivers of before 2021 do not know the question, and a GPU may have no answer.
    """
    found = {(int(major), int(minor)) for major, minor in _CAPABILITY.findall(text)}
    return tuple(f"{major}{minor}-real" for major, minor in sorted(found))


def backend_to_build(machine: Machine, wanted: str) -> str:
    """Return the back end of a source build: the one asked for, else the best that this machine can compile and run."""
    _check(wanted)
    if wanted != AUTO:
        return wanted
    if _is_apple(machine):
        return "metal"
    if machine.nvcc and machine.cuda:
        return "cuda"
    if machine.hipcc and machine.amd_gpu:
        return "hip"
    return "cpu"


def backend_to_download(machine: Machine, wanted: str) -> str:
    """Return the back end of a release archive, which needs the driver but no compiler."""
    _check(wanted)
    if wanted != AUTO:
        return wanted
    if _is_apple(machine):
        return "metal"
    if machine.cuda:
        return "cuda"
    if machine.amd_gpu:
        return "hip"
    return "vulkan" if machine.vulkan_gpu else "cpu"


def _check(wanted: str) -> None:
    if wanted not in {*BACKENDS, AUTO}:
        known = ", ".join((*BACKENDS, AUTO))
        raise UsageError(f"there is no back end {wanted!r}; choose from {known}", param="backend")


def _is_apple(machine: Machine) -> bool:
    return machine.system == "darwin" and machine.architecture == "arm64"


def _smi(env: Mapping[str, str], *options: str) -> str:
    """Return what nvidia-smi prints; nothing where it is not there or fails."""
    tool = shutil.which("nvidia-smi", path=env.get("PATH"))
    if not tool:
        return ""
    try:
        answer = subprocess.run(
            [tool, *options], env=for_engines(env), capture_output=True, timeout=_SMI_SECONDS, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""
