"""Which back end fits a machine, and which tools it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.errors import BuildToolMissing, UsageError
from supervisor.llamacpp.machine import (
    Machine,
    backend_to_build,
    backend_to_download,
    parse_driver_cuda,
    survey,
)
from supervisor.llamacpp.toolchain import check_compilers, how_to_get_compiler

PLAIN = Machine("linux", "x86_64")
NVIDIA = replace(PLAIN, cuda=(13, 0))
AMD = replace(PLAIN, amd_gpu=True)
APPLE = Machine("darwin", "arm64")
SMI = "| NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0 |"


@pytest.mark.parametrize(
    ("machine", "built", "downloaded"),
    [
        (PLAIN, "cpu", "cpu"),
        (NVIDIA, "cpu", "cuda"),
        (replace(NVIDIA, nvcc="/nvcc"), "cuda", "cuda"),
        (replace(PLAIN, nvcc="/nvcc"), "cpu", "cpu"),
        (AMD, "cpu", "hip"),
        (replace(AMD, hipcc="/hipcc"), "hip", "hip"),
        (replace(PLAIN, vulkan_gpu=True), "cpu", "vulkan"),
        (APPLE, "metal", "metal"),
        (replace(APPLE, architecture="x86_64"), "cpu", "cpu"),
    ],
)
def test_auto(machine: Machine, built: str, downloaded: str) -> None:
    assert (backend_to_build(machine, "auto"), backend_to_download(machine, "auto")) == (built, downloaded)


def test_what_was_asked_for_is_taken() -> None:
    assert (backend_to_build(NVIDIA, "vulkan"), backend_to_download(NVIDIA, "cpu")) == ("vulkan", "cpu")
    with pytest.raises(UsageError, match="opencl"):
        backend_to_build(PLAIN, "opencl")


def test_the_drivers_cuda_version() -> None:
    assert parse_driver_cuda(SMI) == (13, 0)
    assert parse_driver_cuda("NVIDIA-SMI has failed because it couldn't communicate") is None


def tool(folder: Path, name: str, text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_survey_sees_the_tools(tmp_path: Path) -> None:
    nvcc = tool(tmp_path / "cuda" / "bin", "nvcc")
    tool(tmp_path / "bin", "nvidia-smi", f"echo '{SMI}'")
    env = {"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(tmp_path / "cuda"), "ROCM_PATH": str(tmp_path)}
    found = survey(env)
    assert (found.nvcc, found.cuda) == (str(nvcc), (13, 0))
    assert found.hipcc is None
    tool(tmp_path / "bin", "nvidia-smi", "exit 9")
    tool(tmp_path / "bin", "hipcc")
    found = survey(env)
    assert (found.cuda, found.hipcc) == (None, str(tmp_path / "bin" / "hipcc"))


def test_a_missing_compiler_is_named_with_what_to_install(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path / "bin")}
    (tmp_path / "bin").mkdir()
    with pytest.raises(BuildToolMissing, match=r"no C compiler.*apt install build-essential"):
        check_compilers(PLAIN, "cpu", env, "ID=debian\n")
    tool(tmp_path / "bin", "cc")
    with pytest.raises(BuildToolMissing, match=r"no C\+\+ compiler"):
        check_compilers(PLAIN, "cpu", env, "")
    tool(tmp_path / "bin", "clang++")
    check_compilers(PLAIN, "cpu", env, "")
    with pytest.raises(BuildToolMissing, match="special-c"):
        check_compilers(PLAIN, "cpu", {**env, "CXX": "special-c++"}, "")


@pytest.mark.parametrize(("backend", "lacking"), [("cuda", "nvcc"), ("hip", "hipcc"), ("metal", "macOS")])
def test_a_missing_gpu_compiler_is_named(tmp_path: Path, backend: str, lacking: str) -> None:
    for name in ("cc", "c++"):
        tool(tmp_path, name)
    with pytest.raises(BuildToolMissing, match=lacking):
        check_compilers(replace(PLAIN, cuda=(12, 8)), backend, {"PATH": str(tmp_path)}, "")


@pytest.mark.parametrize(
    ("system", "text", "command"),
    [
        ("linux", 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n', "apt install"),
        ("linux", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
        ("linux", "ID=alpine\n", "apk add"),
        ("linux", 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper install"),
        ("linux", "ID=unheard-of\n", "your package manager"),
        ("linux", "", "your package manager"),
        ("darwin", "", "xcode-select --install"),
    ],
)
def test_how_to_get_a_compiler(system: str, text: str, command: str) -> None:
    assert command in how_to_get_compiler(system, text)
