"""The tools of a source build: compilers must be there, cmake and ninja can be fetched as Python wheels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.environment import for_builds
from supervisor.errors import BuildToolMissing
from supervisor.llamacpp.cuda import NO_NVCC, wheels_fit
from supervisor.llamacpp.machine import Machine
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.wheels import Wanted, install_wheels

_OLDEST_CMAKE = (3, 18)
_NO_CMAKE = "there is no cmake that runs here: install cmake 3.18 or newer"
_CMAKE_VERSION = re.compile(r"cmake version (\d+)\.(\d+)")
_COMPILERS = {"C": ("CC", ("cc", "gcc", "clang")), "C++": ("CXX", ("c++", "g++", "clang++"))}
_EXE = ".exe" if os.name == "nt" else ""

# How a distribution family (ID or ID_LIKE of os-release) installs a compiler.
_INSTALL_COMPILER = {
    "debian": "sudo apt install build-essential",
    "ubuntu": "sudo apt install build-essential",
    "fedora": "sudo dnf install gcc gcc-c++",
    "rhel": "sudo dnf install gcc gcc-c++",
    "arch": "sudo pacman -S base-devel",
    "suse": "sudo zypper install gcc gcc-c++",
    "alpine": "sudo apk add build-base linux-headers",
}
_ANY_COMPILER = "install gcc and g++ (or clang) with your package manager"


@dataclass(frozen=True)
class Tools:
    """The tools of a build; `ninja` is None where cmake's own default (make, Visual Studio) is to be used."""

    cmake: str
    ninja: str | None


def check_compilers(machine: Machine, backend: str, env: Mapping[str, str], os_release: str) -> None:
    """Raise BuildToolMissing for the first compiler that is not there, saying how to get it.

    What Vulkan needs is looked for by cmake (`llamacpp/vulkan`). On Windows cmake finds Visual Studio by itself: it is
    not on PATH.
    """
    if machine.system != "win32":
        for language, (variable, names) in _COMPILERS.items():
            candidates = (env[variable],) if env.get(variable) else names
            if not any(shutil.which(name.split()[0], path=env.get("PATH")) for name in candidates):
                how = how_to_get_compiler(machine.system, os_release)
                raise BuildToolMissing(f"there is no {language} compiler ({', '.join(candidates)}): {how}")
    if backend == "cuda" and not machine.nvcc and not wheels_fit(machine):
        raise BuildToolMissing(NO_NVCC)
    if backend == "hip" and not machine.hipcc:
        raise BuildToolMissing("there is no hipcc: install AMD's ROCm (HIP SDK), or build with --backend cpu or vulkan")
    if backend == "metal" and machine.system != "darwin":
        raise BuildToolMissing("Metal exists on macOS only: choose another --backend")


def how_to_get_compiler(system: str, os_release: str) -> str:
    """Return the command that installs a compiler, from the text of /etc/os-release."""
    if system == "darwin":
        return "xcode-select --install"
    return for_family(_INSTALL_COMPILER, os_release, _ANY_COMPILER)


def for_family(commands: Mapping[str, str], os_release: str, otherwise: str) -> str:
    """Return the command of the distribution that os-release's text names, else of the first that it is like."""
    families = re.findall(r"^(?:ID|ID_LIKE)=[\"']?([^\"'\n]*)", os_release, re.MULTILINE)
    known = (commands.get(name) for line in families for name in line.split())
    return next((command for command in known if command), otherwise)


def read_os_release() -> str:
    """Return the text of /etc/os-release, empty where there is none."""
    try:
        return Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return ""


async def build_tools(store: EngineStore, env: Mapping[str, str], log: Path, report: Report) -> Tools:
    """Return cmake and ninja from PATH, else from wheels in the store's own tools folder.

    Raises BuildToolMissing where cmake is neither here nor to be had.
    """
    path = env.get("PATH")
    ninja = _first(shutil.which("ninja", path=path), _wheel_tool(store.tools, "ninja"))
    found = [shutil.which("cmake", path=path), _wheel_tool(store.tools, "cmake")]
    cmake = _first(*(c for c in found if c and _is_recent(c)))
    if cmake and (ninja or os.name == "nt" or shutil.which("make", path=path)):
        return Tools(cmake, ninja)
    report(Progress("tools", None, "getting cmake and ninja from the Python package index"))
    await install_wheels(store, Wanted(("cmake", "ninja"), store.tools, _NO_CMAKE), env, log, report)
    cmake = _first(cmake, _wheel_tool(store.tools, "cmake"))
    ninja = _first(ninja, _wheel_tool(store.tools, "ninja"))
    if not cmake or not _is_recent(cmake):
        raise BuildToolMissing(_NO_CMAKE)
    return Tools(cmake, ninja)


def _wheel_tool(tools: Path, name: str) -> str | None:
    """Return the program itself: the wheels' scripts in bin/ need their package on Python's path."""
    inside = tools / name / "data" / "bin" / f"{name}{_EXE}"
    candidates = (inside, tools / "bin" / f"{name}{_EXE}") if name == "ninja" else (inside,)
    return next((str(path) for path in candidates if path.is_file()), None)


def _first(*candidates: str | None) -> str | None:
    return next((candidate for candidate in candidates if candidate), None)


def _is_recent(cmake: str) -> bool:
    try:
        env = for_builds(os.environ)
        answer = subprocess.run([cmake, "--version"], env=env, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = _CMAKE_VERSION.search(answer.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= _OLDEST_CMAKE
