"""The parts of a Vulkan build besides compilers: headers, loader, shader compiler, SPIRV-Headers.

cmake itself is asked what it finds, with the calls that llama.cpp's own build makes, before anything is compiled.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from supervisor.errors import BuildToolMissing
from supervisor.llamacpp.run_tool import run_tool
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.toolchain import Tools, for_family
from supervisor.llamacpp.versions import TAG

Version: TypeAlias = tuple[int, int, int]

SDK_VARIABLE = "VULKAN_SDK"
_CORE = Path("vulkan/vulkan_core.h")
_PATCH = re.compile(r"^#define VK_HEADER_VERSION (\d+)", re.MULTILINE)
_MAKE = re.compile(
    r"^#define VK_HEADER_VERSION_COMPLETE VK_MAKE(?:_API)?_VERSION\((?:0, )?(\d+), (\d+), VK_HEADER_VERSION\)",
    re.MULTILINE,
)
_FOUND = re.compile(r"found (?P<part>\w+)=(?P<where>.*)")
_PROBE = """cmake_minimum_required(VERSION 3.18)
project(vulkan CXX)
find_package(Vulkan)
list(APPEND CMAKE_PREFIX_PATH "$ENV{VULKAN_SDK}")
find_package(SPIRV-Headers CONFIG)
message(STATUS "found headers=${Vulkan_INCLUDE_DIR}")
message(STATUS "found loader=${Vulkan_LIBRARY}")
message(STATUS "found glslc=${Vulkan_GLSLC_EXECUTABLE}")
message(STATUS "found spirv=${SPIRV-Headers_DIR}")
"""

# The four parts, as a person may look for them, and how a distribution family installs them.
_PARTS = {
    "headers": "the Vulkan headers (vulkan/vulkan.h)",
    "loader": "the Vulkan loader to link with (libvulkan.so)",
    "glslc": "the shader compiler glslc",
    "spirv": "SPIRV-Headers",
}
_INSTALL = {
    "debian": "sudo apt install libvulkan-dev glslc spirv-headers",
    "ubuntu": "sudo apt install libvulkan-dev glslc spirv-headers",
    "fedora": "sudo dnf install vulkan-headers vulkan-loader-devel glslc spirv-headers-devel",
    "rhel": "sudo dnf install vulkan-headers vulkan-loader-devel glslc spirv-headers-devel",
    "arch": "sudo pacman -S vulkan-headers vulkan-icd-loader shaderc spirv-headers",
    "suse": "sudo zypper install vulkan-headers vulkan-devel shaderc spirv-headers",
    "alpine": "sudo apk add vulkan-headers vulkan-loader-dev shaderc spirv-headers",
}
_ANY = f"install the Vulkan SDK and set {SDK_VARIABLE} to its folder"


def header_version(text: str) -> Version | None:
    """Return the version that a `vulkan_core.h` says of itself; None for one before 1.2, which does not say it."""
    both, patch = _MAKE.search(text), _PATCH.search(text)
    return (int(both[1]), int(both[2]), int(patch[1])) if both and patch else None


def parse_found(lines: Iterable[str]) -> dict[str, str]:
    """Return where cmake found each part; one that it did not find is left out."""
    told = (match for line in lines if (match := _FOUND.search(line)))
    return {match["part"]: match["where"] for match in told if match["where"] and "NOTFOUND" not in match["where"]}


def with_sdk(env: Mapping[str, str], sdk: Path) -> dict[str, str]:
    """Return the environment of a build for Vulkan: `sdk` is used where it has headers and no other SDK is named."""
    ours = {} if env.get(SDK_VARIABLE) or not (sdk / "include" / _CORE).is_file() else {SDK_VARIABLE: str(sdk)}
    return {**env, **ours}


async def check_vulkan(
    store: EngineStore, tools: Tools, env: Mapping[str, str], log: Path, least: Version | None, os_release: str
) -> dict[str, str]:
    """Return the environment to build in.

    Raises BuildToolMissing for parts that cmake does not find, and for headers older than `least`; it says what to do.
    """
    env = with_sdk(env, store.vulkan_sdk)
    found = await _ask_cmake(store, tools, env, log)
    lacking = [name for part, name in _PARTS.items() if part not in found]
    if lacking:
        how = for_family(_INSTALL, os_release, _ANY)
        raise BuildToolMissing(f"a build for Vulkan needs {', '.join(lacking)}: {how}")
    folder = _header_folder(env, Path(found["headers"]))
    version = _version_in(folder)
    if least and (version or (0, 0, 0)) < least:
        raise BuildToolMissing(_too_old(folder, version, least, store.vulkan_sdk))
    return env


def _too_old(folder: Path, version: Version | None, least: Version, sdk: Path) -> str:
    have = _dotted(version) if version else "older than 1.2"
    return (
        f"the Vulkan headers in {folder} are {have}, and llama.cpp {TAG} needs {_dotted(least)} or newer: unpack newer "
        f"ones to {sdk / 'include'}, or install a newer Vulkan SDK and set {SDK_VARIABLE} to its folder"
    )


def _version_in(folder: Path) -> Version | None:
    try:
        return header_version((folder / _CORE).read_text(encoding="utf-8", errors="replace"))
    except OSError:  # before 1.1 there was no such file
        return None


def _header_folder(env: Mapping[str, str], found: Path) -> Path:
    """Return the folder whose headers the compiler takes: those of CPATH come before what cmake found."""
    named = [Path(entry) for entry in env.get("CPATH", "").split(os.pathsep) if entry]
    return next((folder for folder in named if (folder / _CORE).is_file()), found)


async def _ask_cmake(store: EngineStore, tools: Tools, env: Mapping[str, str], log: Path) -> dict[str, str]:
    scratch = store.new_scratch("vulkan")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"] if tools.ninja else []
    try:
        (scratch / "CMakeLists.txt").write_text(_PROBE, encoding="utf-8")
        argv = [tools.cmake, "-S", str(scratch), "-B", str(scratch / "build"), *generator]
        result = await run_tool(argv, env=env, log=log)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if result.status != 0:
        raise BuildToolMissing(f"cmake cannot look for Vulkan; its output is in {log}", log_lines=result.tail[-10:])
    return parse_found(result.tail)


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
