"""cmake and ninja: from PATH, else from wheels, else a clear word."""

from __future__ import annotations

import asyncio
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from supervisor.errors import BuildToolMissing
from supervisor.llamacpp.install import InstallRequest, install
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.toolchain import Tools, build_tools, how_to_get_compiler
from supervisor.system.paths import Places
from tests.llamacpp.fakes import make_source, silent

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "c++", "as", "ld", "cmake", "ninja"))),
    reason="there is no compiler, no cmake or no ninja",
)


def make_wheel(folder: Path, name: str, program: str) -> None:
    """A wheel that carries `program` where the real wheel of cmake or ninja has it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-9.0.dist-info"
    inside = zipfile.ZipInfo(f"{name}/data/bin/{name}")
    inside.external_attr = 0o100755 << 16
    with zipfile.ZipFile(folder / f"{name}-9.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(inside, program)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def bare_machine(tmp_path: Path, *names: str) -> dict[str, str]:
    """An environment with these programs only, and a package index that is a folder of wheels."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(str(shutil.which(name)))
    return {
        "PATH": str(folder),
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def tools(places: Places, env: dict[str, str], tmp_path: Path) -> Tools:
    return asyncio.run(build_tools(EngineStore(places.engines), env, tmp_path / "log", silent))


@needs_tools
def test_from_path(places: Places, tmp_path: Path) -> None:
    env = bare_machine(tmp_path, "cmake", "ninja")
    assert tools(places, env, tmp_path) == Tools(str(tmp_path / "bin" / "cmake"), str(tmp_path / "bin" / "ninja"))


@needs_tools
def test_a_build_with_tools_from_wheels(places: Places, tmp_path: Path) -> None:
    """The wheels' programs call the real ones; a second build finds them without pip."""
    for name in ("cmake", "ninja"):
        make_wheel(tmp_path / "wheels", name, f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
    env = bare_machine(tmp_path, "cc", "c++", "as", "ld")

    async def passes(_: Path) -> None:
        pass

    request = InstallRequest((str(make_source(tmp_path / "source")),), "cpu")
    asyncio.run(install(places, env, request, smoke_test=passes, progress=silent))
    shutil.rmtree(tmp_path / "wheels")
    found = tools(places, env, tmp_path)
    assert found == Tools(
        str(places.engines / "tools" / "cmake" / "data" / "bin" / "cmake"),
        str(places.engines / "tools" / "ninja" / "data" / "bin" / "ninja"),
    )


def test_too_old_a_cmake_does_not_do_and_none_to_be_had_is_said(places: Places, tmp_path: Path) -> None:
    env = bare_machine(tmp_path)
    old = tmp_path / "bin" / "cmake"
    old.write_text("#!/bin/sh\necho cmake version 3.10.2\n", encoding="utf-8")
    old.chmod(0o755)
    with pytest.raises(BuildToolMissing, match=r"install cmake 3\.18 or newer") as caught:
        tools(places, env, tmp_path)
    assert caught.value.log_lines


@pytest.mark.parametrize(
    ("family", "command"),
    [
        ("debian", "sudo apt install build-essential"),
        ("ubuntu", "sudo apt install build-essential"),
        ("fedora", "sudo dnf install gcc gcc-c++"),
        ("rhel", "sudo dnf install gcc gcc-c++"),
        ("arch", "sudo pacman -S base-devel"),
        ("suse", "sudo zypper install gcc gcc-c++"),
        ("alpine", "sudo apk add build-base linux-headers"),
    ],
)
def test_every_family_has_its_command(family: str, command: str) -> None:
    """Its own, and that of systems that say they are like it."""
    assert how_to_get_compiler("linux", f"NAME=x\nID={family}\n") == command
    assert how_to_get_compiler("linux", f'ID=other\nID_LIKE="nobody {family}"\n') == command
