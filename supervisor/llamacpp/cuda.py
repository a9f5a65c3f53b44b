"""NVIDIA's compiler for a build: the machine's own toolkit, else one from Python wheels.

NVIDIA publishes the parts of the toolkit as wheels. Those of CUDA 13 unpack into one folder with the layout of a
toolkit, `nvidia/cu13`, that lacks three things, which are added here: `lib64`, the libraries' names without a version,
and a `libcuda.so` to link with, which only the driver has. The wheels of CUDA 12 hold no `nvcc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.environment import for_builds
from supervisor.errors import BuildToolMissing
from supervisor.llamacpp.machine import Machine
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.wheels import Wanted, install_wheels

# All of one version. The wheels ask for any of each other, and ptxas refuses what a newer cicc writes.
WHEELS = (
    *("nvidia-cuda-nvcc==13.0.*", "nvidia-cuda-crt==13.0.*", "nvidia-nvvm==13.0.*"),
    *("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-cccl==13.0.*", "nvidia-cublas==13.0.*"),
)
_INSIDE = Path("nvidia") / "cu13"
_LINKED = ("libcudart.so", "libcublas.so", "libcublasLt.so")
"""The libraries that an engine needs and that come with no driver."""

OLDEST_DRIVER = (13, 0)
DEFAULT_ARCHITECTURES = "75-virtual;80-virtual;86-real;89-real;90-virtual"
"""GPUs from Turing on; newer ones than are named translate the last on their first run. Needs CUDA 11.8."""

_ASKED = "CUDAARCHS"  # CMake's own variable, which llama.cpp's CMakeLists.txt would override
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_NVCC_SECONDS = 30
_STUBS = ("lib64/stubs", "lib/stubs", "targets/*/lib/stubs")
_INCLUDES = ("include", "targets/*/include")
_SYSTEM_LIBRARIES = (
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"),
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
)
NO_NVCC = "there is no nvcc: install NVIDIA's CUDA toolkit, or build with --backend cpu or vulkan"


@dataclass(frozen=True)
class CudaToolkit:
    """A toolkit to build with.

    Attributes:
        nvcc: the compiler.
        root: the folder with `include` and `lib64`.
        driver: whether there is a `libcuda.so` to link with.
        libraries: what has to be put beside an engine, because no system has it; empty for a toolkit of the machine's.
    """

    nvcc: str
    root: Path
    driver: bool
    libraries: tuple[Path, ...] = ()


def cuda_flags(toolkit: CudaToolkit, architectures: str) -> list[str]:
    """Return cmake's options. The root is among them because llama.cpp looks for the toolkit before the compiler.

    It would find another one in the usual places. Without the driver's library the pool of virtual memory is left out.
    """
    flags = [
        f"-DCMAKE_CUDA_COMPILER={toolkit.nvcc}",
        f"-DCUDAToolkit_ROOT={toolkit.root}",
        f"-DCMAKE_CUDA_ARCHITECTURES={architectures}",
    ]
    return flags if toolkit.driver else [*flags, "-DGGML_CUDA_NO_VMM=ON"]


def architectures(machine: Machine, env: Mapping[str, str]) -> str:
    """Return the GPUs to compile for: those asked for in CUDAARCHS, those of this machine, else the default.

    `native`, llama.cpp's own choice, fails on a machine where no GPU is to be seen.
    """
    return env.get(_ASKED) or ";".join(machine.cuda_architectures) or DEFAULT_ARCHITECTURES


async def cuda_toolkit(
    store: EngineStore, machine: Machine, env: Mapping[str, str], log: Path, report: Report
) -> CudaToolkit:
    """Return the machine's toolkit if it is whole, else one from wheels, fetched if need be (1 GB).

    Raises BuildToolMissing.
    """
    own = await asyncio.to_thread(_own_toolkit, machine, env)
    if own is not None and (_is_whole(own.root) or not wheels_fit(machine)):
        return own
    if not wheels_fit(machine):
        raise BuildToolMissing(NO_NVCC)
    found = _from_wheels(store.cuda)
    if found is None:
        report(Progress("tools", None, "getting NVIDIA's compiler from the Python package index (1 GB)"))
        await install_wheels(store, Wanted(WHEELS, store.cuda, NO_NVCC), env, log, report)
        await asyncio.to_thread(_complete, store.cuda / _INSIDE)
        found = _from_wheels(store.cuda)
    if found is None:
        raise BuildToolMissing(f"{NO_NVCC}; the wheels {', '.join(WHEELS)} hold none")
    return found


def wheels_fit(machine: Machine) -> bool:
    """Return whether what NVIDIA's wheels compile runs here: CUDA 13 on Linux, with no driver that is too old."""
    known = machine.architecture.lower() in {"x86_64", "aarch64"}
    return machine.system == "linux" and known and (machine.cuda is None or machine.cuda >= OLDEST_DRIVER)


def put_beside(toolkit: CudaToolkit, programs: Path) -> None:
    """Put the toolkit's libraries into an engine's folder, so that it needs nothing else; links where the disk can."""
    for library in toolkit.libraries:
        with contextlib.suppress(FileExistsError):
            try:
                os.link(library, programs / library.name)
            except FileExistsError:
                raise
            except OSError:
                shutil.copy2(library, programs / library.name)


def _own_toolkit(machine: Machine, env: Mapping[str, str]) -> CudaToolkit | None:
    if machine.nvcc is None:
        return None
    root = _root_of(machine.nvcc, env)
    return CudaToolkit(machine.nvcc, root, _has_driver_library(root))


def _root_of(nvcc: str, env: Mapping[str, str]) -> Path:
    """Return the toolkit's folder as the compiler itself tells it: `nvcc` may be a script in another place."""
    argv = [nvcc, "--dryrun", "-c", "nothing.cu"]
    try:
        answer = subprocess.run(
            argv, env=for_builds(env), capture_output=True, timeout=_NVCC_SECONDS, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        answer = None
    told = _TOP.search(answer.stderr + answer.stdout) if answer else None
    return Path(os.path.normpath(told[1].strip())) if told else Path(nvcc).resolve().parents[1]


def _is_whole(root: Path) -> bool:
    """Return whether cuBLAS is there, which some installations leave out."""
    places = (root, Path("/usr")) if root == Path("/usr/lib/nvidia-cuda-toolkit") else (root,)
    return any(any(place.glob(f"{folder}/cublas_v2.h")) for place in places for folder in _INCLUDES)


def _has_driver_library(root: Path) -> bool:
    stubs = any(any(root.glob(f"{folder}/libcuda.so")) for folder in _STUBS)
    return stubs or any((Path(folder) / "libcuda.so").exists() for folder in _SYSTEM_LIBRARIES)


def _from_wheels(folder: Path) -> CudaToolkit | None:
    root = folder / _INSIDE
    nvcc = root / "bin" / "nvcc"
    if not nvcc.is_file() or not (root / "lib64").exists():
        return None
    libraries = tuple(path for name in _LINKED for path in sorted((root / "lib").glob(f"{name}.*")))
    return CudaToolkit(str(nvcc), root, _has_driver_library(root), libraries)


def _complete(root: Path) -> None:
    """Add what the wheels lack; `lib64` last, because a folder that has it is taken to be whole."""
    for name, target in _missing_links(root):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(target)


def _missing_links(root: Path) -> Iterator[tuple[str, str | Path]]:
    for name in _LINKED:
        versioned = next(iter(sorted((root / "lib").glob(f"{name}.*"))), None)
        if versioned is not None:
            yield f"lib/{name}", versioned.name
    driver = next((path for folder in _SYSTEM_LIBRARIES if (path := Path(folder) / "libcuda.so.1").exists()), None)
    if driver is not None:
        yield "lib/stubs/libcuda.so", driver
    if (root / "lib").is_dir():
        yield "lib64", "lib"
