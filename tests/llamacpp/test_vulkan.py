"""What a build for Vulkan needs besides compilers: found as cmake finds it, or named with what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.core.environment import for_builds
from supervisor.errors import BuildToolMissing
from supervisor.llamacpp.install import InstallRequest, install
from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.toolchain import Tools
from supervisor.llamacpp.versions import LEAST_VULKAN_HEADERS
from supervisor.llamacpp.vulkan import Version, check_vulkan, header_version, parse_found
from supervisor.system.paths import Places
from tests.llamacpp.fakes import make_vulkan_sdk, vulkan_header

needs_compiler = pytest.mark.skipif(
    not (shutil.which("c++") and shutil.which("cmake")), reason="there is no C++ compiler or no cmake"
)
DEBIAN = "ID=debian\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (vulkan_header(239), (1, 3, 239)),
        (vulkan_header(309, "VK_MAKE_API_VERSION(0, 1, 4, VK_HEADER_VERSION)"), (1, 4, 309)),
        (vulkan_header(131, "VK_MAKE_VERSION(1, 2, VK_HEADER_VERSION)"), (1, 2, 131)),
        ("#define VK_HEADER_VERSION 50\n", None),
        ("", None),
    ],
)
def test_headers_say_their_version(text: str, version: Version | None) -> None:
    assert header_version(text) == version


def test_what_cmake_did_not_find_is_left_out() -> None:
    lines = ["-- found headers=/usr/include", "-- found loader=Vulkan_LIBRARY-NOTFOUND", "-- found glslc=", "-- Done"]
    assert parse_found(lines) == {"headers": "/usr/include"}


def test_compilers_are_told_of_an_sdk_and_of_folders() -> None:
    named = {"VULKAN_SDK": "/sdk", "CPATH": "/a", "CMAKE_PREFIX_PATH": "/b", "CMAKE_INCLUDE_PATH": "/c"}
    assert for_builds(named) == named


def check(
    places: Places, folder: Path, found: str, env: Mapping[str, str] | None = None, *, os_release: str = DEBIAN,
    least: Version | None = (1, 3, 272),
) -> dict[str, str]:  # fmt: skip
    """Check with a cmake that prints `found`."""
    cmake = folder / "cmake"
    cmake.write_text(f"#!/bin/sh\ncat <<'END'\n{found}\nEND\n", encoding="utf-8")
    cmake.chmod(0o755)
    tools = Tools(str(cmake), None)
    return asyncio.run(check_vulkan(EngineStore(places.engines), tools, env or {}, folder / "log", least, os_release))


def all_found(headers: Path) -> str:
    return f"-- found headers={headers}\n-- found loader=/l\n-- found glslc=/g\n-- found spirv=/s"


@pytest.mark.parametrize(
    ("part", "name"),
    [("headers", "Vulkan headers"), ("loader", "libvulkan.so"), ("glslc", "glslc"), ("spirv", "SPIRV-Headers")],
)
def test_a_missing_part_is_named_with_what_to_install(places: Places, tmp_path: Path, part: str, name: str) -> None:
    found = "\n".join(line for line in all_found(tmp_path).splitlines() if part not in line)
    with pytest.raises(BuildToolMissing) as caught:
        check(places, tmp_path, found)
    needs, command = caught.value.message.split(": ")
    assert name in needs
    assert needs.count(",") == 0
    assert command == "sudo apt install libvulkan-dev glslc spirv-headers"


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        ("ID=ubuntu\nID_LIKE=debian\n", "apt install libvulkan-dev"),
        ("ID=fedora\n", "dnf install vulkan-headers"),
        ('ID=rocky\nID_LIKE="rhel centos fedora"\n', "dnf install vulkan-headers"),
        ("ID=arch\n", "pacman -S vulkan-headers"),
        ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "zypper install vulkan-headers"),
        ("ID=alpine\n", "apk add vulkan-headers"),
        ("ID=unheard-of\n", "set VULKAN_SDK to its folder"),
    ],
)
def test_every_family_has_its_command(places: Places, tmp_path: Path, os_release: str, command: str) -> None:
    with pytest.raises(BuildToolMissing, match=command):
        check(places, tmp_path, "", os_release=os_release)


def test_headers_that_are_too_old_are_named_with_where_to_put_newer_ones(places: Places, tmp_path: Path) -> None:
    old = make_vulkan_sdk(tmp_path / "old", 271) / "include"
    with pytest.raises(BuildToolMissing, match=r"are 1\.3\.271, .* needs 1\.3\.272 or newer") as caught:
        check(places, tmp_path, all_found(old))
    assert str(places.engines / "vulkan-sdk" / "include") in caught.value.message
    assert "VULKAN_SDK" in caught.value.message
    assert check(places, tmp_path, all_found(old), least=None) == {}
    (old / "vulkan" / "vulkan_core.h").unlink()
    with pytest.raises(BuildToolMissing, match=r"older than 1\.2"):
        check(places, tmp_path, all_found(old))


def test_headers_that_do(places: Places, tmp_path: Path) -> None:
    exact = make_vulkan_sdk(tmp_path / "exact", 272) / "include"
    assert check(places, tmp_path, all_found(exact)) == {}


def test_headers_of_cpath_come_first(places: Places, tmp_path: Path) -> None:
    """So they do for the compiler."""
    old, new = (make_vulkan_sdk(tmp_path / str(patch), patch) / "include" for patch in (100, 300))
    paths = {"CPATH": f"{os.pathsep}{tmp_path}{os.pathsep}{new}"}
    assert check(places, tmp_path, all_found(old), paths) == paths
    with pytest.raises(BuildToolMissing):
        check(places, tmp_path, all_found(new), {"CPATH": str(old)})


def test_headers_beside_the_engines_are_used_unless_an_sdk_is_named(places: Places, tmp_path: Path) -> None:
    ours = make_vulkan_sdk(places.engines / "vulkan-sdk")
    found = all_found(ours / "include")
    assert check(places, tmp_path, found) == {"VULKAN_SDK": str(ours)}
    assert check(places, tmp_path, found, {"VULKAN_SDK": "/named"}) == {"VULKAN_SDK": "/named"}


def test_a_cmake_that_fails_is_quoted(places: Places, tmp_path: Path) -> None:
    with pytest.raises(BuildToolMissing, match="cmake cannot look for Vulkan") as caught:
        check(places, tmp_path, "END\necho no compiler\nexit 1\ncat <<'END'")
    assert caught.value.log_lines[-1] == "no compiler"


@needs_compiler
def test_cmake_finds_the_parts_of_an_sdk(places: Places, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "VULKAN_SDK": str(make_vulkan_sdk(tmp_path / "sdk"))}
    tools = Tools(str(shutil.which("cmake")), shutil.which("ninja"))
    store, log = EngineStore(places.engines), tmp_path / "log"
    assert asyncio.run(check_vulkan(store, tools, env, log, LEAST_VULKAN_HEADERS, DEBIAN)) == env
    text = log.read_text(encoding="utf-8")
    for where in ("headers={}/include", "loader={}/lib/libvulkan.so", "glslc={}/bin/glslc", "spirv={}/share"):
        assert f"found {where.format(tmp_path / 'sdk')}" in text
    assert not list((places.engines / "scratch").iterdir())


@needs_compiler
def test_too_old_headers_are_noticed_before_the_source_is_fetched(places: Places, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SUPERVISOR_PACKAGE_INDEX": "http://127.0.0.1:1"}
    env["VULKAN_SDK"] = str(make_vulkan_sdk(tmp_path / "sdk", 239))
    steps: list[Progress] = []

    async def passes(_: Path) -> None:
        pass

    request = InstallRequest(("registry", "git"), "vulkan")
    with pytest.raises(BuildToolMissing, match=r"1\.3\.239"):
        asyncio.run(install(places, env, request, smoke_test=passes, progress=steps.append))
    assert {step.stage for step in steps} <= {"route"}
