"""A Vulkan engine that takes all but ggml from the CPU engine that was built alike; with a real compiler."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.llamacpp.install import InstallRequest, install
from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.recipe import recipe, settings
from supervisor.llamacpp.store import EngineStore, Manifest
from supervisor.system.paths import Places
from tests.llamacpp.fakes import make_source, make_vulkan_sdk

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("c++", "cmake", "git"))), reason="there is no C++ compiler, no cmake or no git"
)

CACHE = """# This is the CMakeCache file.
//A comment
CMAKE_CXX_FLAGS:STRING={flags}
CMAKE_HOME_DIRECTORY:INTERNAL={folder}
GGML_VULKAN:BOOL={vulkan}
GGML_VULKAN_DEBUG:BOOL=OFF
Vulkan_LIBRARY:FILEPATH=/usr/lib/libvulkan.so
SPIRV-Headers_DIR:PATH=/usr/share
llama_BINARY_DIR:STATIC={folder}
"""


def test_settings_are_those_of_no_back_end() -> None:
    assert settings(CACHE.format(flags="-O2", vulkan="ON", folder="/b")) == [
        "CMAKE_CXX_FLAGS:STRING=-O2",
        "GGML_VULKAN_DEBUG:BOOL=OFF",
        "llama_BINARY_DIR:STATIC=/b",
    ]


def configured(build: Path, flags: str = "", vulkan: str = "OFF", compiler: str = "gcc 12") -> Path:
    """A build folder as cmake leaves it."""
    described = build / "CMakeFiles" / "3.25.1" / "CMakeCXXCompiler.cmake"
    described.parent.mkdir(parents=True)
    described.write_text(compiler, encoding="utf-8")
    (build / "CMakeCache.txt").write_text(CACHE.format(flags=flags, vulkan=vulkan, folder=build), encoding="utf-8")
    return build


def test_a_recipe_is_source_compiler_and_settings_but_neither_place_nor_back_end(tmp_path: Path) -> None:
    source = tmp_path / "source"
    cpu = recipe("5a", source, configured(tmp_path / "cpu"))
    assert cpu
    assert recipe("5a", source, configured(tmp_path / "vulkan", vulkan="ON")) == cpu
    assert recipe("5b", source, tmp_path / "vulkan") != cpu
    assert recipe("5a", source, configured(tmp_path / "flags", flags="-O2")) != cpu
    assert recipe("5a", source, configured(tmp_path / "compiler", compiler="gcc 13")) != cpu
    assert recipe(None, source, tmp_path / "cpu") is None


class Workshop:
    """Builds of one source, which is a checkout."""

    def __init__(self, places: Places, folder: Path) -> None:
        self.places = places
        self.source = make_source(folder / "source")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "VULKAN_SDK": str(make_vulkan_sdk(folder / "sdk")),
        }
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(self.source), *arguments], check=True)

    def commit(self) -> None:
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "x")

    def build(self, backend: str, **env: str) -> tuple[Manifest, bool]:
        """The engine, and whether it shares another's files."""
        steps: list[Progress] = []

        async def passes(_: Path) -> None:
            pass

        request = InstallRequest((str(self.source),), backend, jobs=1)
        work = install(self.places, {**self.env, **env}, request, smoke_test=passes, progress=steps.append)
        return asyncio.run(work), any(step.stage == "share" for step in steps)


@pytest.fixture
def workshop(places: Places, tmp_path: Path) -> Workshop:
    return Workshop(places, tmp_path)


@needs_tools
def test_a_vulkan_engine_shares_what_is_not_ggmls(workshop: Workshop) -> None:
    cpu, _ = workshop.build("cpu")
    vulkan, shared = workshop.build("vulkan")
    assert shared
    assert (vulkan.name, vulkan.recipe) == ("b1-vulkan", cpu.recipe)
    store = EngineStore(workshop.places.engines)
    log = max(store.logs.iterdir(), key=lambda path: path.stat().st_mtime_ns).read_text(encoding="utf-8")
    assert "ggml-vulkan" in log
    assert "main.cpp" not in log
    store.remove(cpu.name)
    folder = store.binary(vulkan.name).parent
    assert {path.name for path in folder.iterdir()} == {
        *("llama-server", "ggml-rpc-server", "libggml-cpu.so", "libggml-vulkan.so")
    }
    said = subprocess.run([store.binary(vulkan.name), "--version"], capture_output=True, text=True, check=True)
    assert "build 1" in said.stderr


@needs_tools
def test_other_flags_or_a_changed_source_share_nothing(workshop: Workshop) -> None:
    workshop.build("cpu")
    assert workshop.build("vulkan", CXXFLAGS="-O1")[1] is False
    with (workshop.source / "library.cpp").open("a", encoding="utf-8") as stream:
        stream.write("// changed\n")
    changed, shared = workshop.build("vulkan")
    assert (changed.recipe, shared) == (None, False)


@needs_tools
def test_a_cpu_engine_takes_nothing_from_a_vulkan_engine(workshop: Workshop) -> None:
    assert workshop.build("vulkan")[1] is False
    assert workshop.build("cpu")[1] is False
    assert workshop.build("vulkan")[1] is True
