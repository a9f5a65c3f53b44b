"""cmake's calls: what they say of the source, the tools, the back end and the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.llamacpp.build import BuildPlan, build_command, configure_command
from supervisor.llamacpp.machine import Machine
from supervisor.llamacpp.source import Source
from supervisor.llamacpp.toolchain import Tools


def plan(folder: Path, backend: str = "cpu", system: str = "linux", ninja: str | None = None) -> BuildPlan:
    source = Source(folder / "source", 11434, "abc1234", "registry")
    return BuildPlan(source, backend, Machine(system, "x86_64"), Tools("cmake", ninja), 3)


@pytest.mark.parametrize(
    ("backend", "flags"),
    [
        ("cpu", set[str]()),
        ("cuda", {"-DGGML_CUDA=ON"}),
        ("hip", {"-DGGML_HIP=ON"}),
        ("vulkan", {"-DGGML_VULKAN=ON"}),
        ("metal", {"-DGGML_METAL=ON", "-DGGML_METAL_EMBED_LIBRARY=ON"}),
    ],
)
def test_each_back_end_is_switched_on_and_no_other(tmp_path: Path, backend: str, flags: set[str]) -> None:
    said = configure_command(plan(tmp_path, backend), tmp_path / "build")
    assert {word for word in said if word.startswith("-DGGML_")} == {"-DGGML_RPC=ON", *flags}


def test_the_build_knows_its_number_its_commit_and_where_its_libraries_are(tmp_path: Path) -> None:
    said = configure_command(plan(tmp_path, ninja="/bin/ninja"), tmp_path / "build")
    assert said[:5] == ["cmake", "-S", str(tmp_path / "source"), "-B", str(tmp_path / "build")]
    assert said[5:8] == ["-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=/bin/ninja"]
    assert {"-DLLAMA_BUILD_NUMBER=11434", "-DLLAMA_BUILD_COMMIT=abc1234", "-DCMAKE_BUILD_TYPE=Release"} <= {*said}
    assert "-DCMAKE_INSTALL_RPATH=$ORIGIN" in said
    assert "-DCMAKE_INSTALL_RPATH=@loader_path" in configure_command(plan(tmp_path, system="darwin"), tmp_path)
    assert "-G" not in configure_command(plan(tmp_path), tmp_path)


def test_as_many_compilers_run_as_are_allowed(tmp_path: Path) -> None:
    said = build_command(plan(tmp_path), tmp_path / "build", only_ggml=True)
    assert said[:3] == ["cmake", "--build", str(tmp_path / "build")]
    assert said[3:] == ["--config", "Release", "--parallel", "3", "--target", "ggml"]
