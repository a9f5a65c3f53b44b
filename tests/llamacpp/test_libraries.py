"""Folders of made libraries, found for the binaries that need them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.launch import with_libraries
from supervisor.llamacpp.libraries import runtime_libraries
from tests.support.patience import PATIENCE


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    folder = tmp_path / "engine" / "bin"
    folder.mkdir(parents=True)
    (folder / "llama-server").write_bytes(b"\x7fELF plain")
    return folder / "llama-server"


def make(folder: Path, *names: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return str(folder)


def find(binary: Path, tmp_path: Path, *backends: str, **env: str) -> tuple[str, ...]:
    return runtime_libraries(binary, env, backends, [tmp_path / "site-packages"], tmp_path).folders


@pytest.fixture
def toolkits(tmp_path: Path) -> dict[str, str]:
    return {
        "pip": make(tmp_path / "site-packages/nvidia/cuda_runtime/lib", "libcudart.so.12"),
        "usual": make(tmp_path / "usr/local/cuda/lib64", "libcudart.so.13", "libcublas.so.13"),
        "new": make(tmp_path / "usr/local/cuda-13.1/lib64", "libcudart.so.13"),
        "old": make(tmp_path / "usr/local/cuda-12.4/lib64", "libcudart.so.12"),
        "own": make(tmp_path / "own/lib", "libcudart.so.11"),
        "other": make(tmp_path / "site-packages/nvidia/nvtx/lib", "libnvtx.so"),
        "rocm": make(tmp_path / "opt/rocm/lib", "libamdhip64.so.6"),
    }


def test_a_cpu_build_needs_nothing(binary: Path, tmp_path: Path, toolkits: dict[str, str]) -> None:
    make(binary.parent, "libggml-cpu.so", "libggml-vulkan.so")
    assert find(binary, tmp_path) == ()
    assert find(binary, tmp_path, "cpu", "vulkan", "rpc") == ()


def test_where_cuda_is_looked_for_and_in_which_order(binary: Path, tmp_path: Path, toolkits: dict[str, str]) -> None:
    found = find(binary, tmp_path, "cuda", CUDA_HOME=str(tmp_path / "own"))
    assert found == (str(binary.parent), *(toolkits[name] for name in ("pip", "own", "usual", "new", "old")))


@pytest.mark.parametrize("library", ["bin/libggml-cuda.so", "lib/libggml-cuda.so.0"])
def test_a_library_of_the_back_end_tells_that_it_is_needed(
    binary: Path, tmp_path: Path, toolkits: dict[str, str], library: str
) -> None:
    make((binary.parents[1] / library).parent, Path(library).name)
    assert toolkits["pip"] in find(binary, tmp_path)
    assert toolkits["rocm"] not in find(binary, tmp_path)


@pytest.mark.parametrize(("needed", "place"), [(b"libcudart.so.12", "usual"), (b"libamdhip64.so.6", "rocm")])
def test_so_does_what_a_static_build_is_linked_to(
    binary: Path, tmp_path: Path, toolkits: dict[str, str], needed: bytes, place: str
) -> None:
    binary.write_bytes(b"\x7fELF\0" + needed + b"\0")
    assert toolkits[place] in find(binary, tmp_path)


def test_without_a_runtime_anywhere_nothing_is_set(binary: Path, tmp_path: Path) -> None:
    assert find(binary, tmp_path, "cuda", "hip") == ()


def test_a_missing_binary_is_for_others_to_report(tmp_path: Path) -> None:
    assert runtime_libraries(tmp_path / "absent" / "llama-server", {}, sites=[], root=tmp_path).folders == ()


@pytest.mark.skipif(sys.platform == "win32", reason="the loader's variable is another")
def test_the_variable(binary: Path, tmp_path: Path, toolkits: dict[str, str]) -> None:
    path = runtime_libraries(binary, {}, ("cuda",), [], tmp_path)
    assert path.variable == ("DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="made with the linker of Linux")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_program_that_the_loader_cannot_start_by_itself_starts(tmp_path: Path) -> None:
    toolkit, program = tmp_path / "toolkit" / "lib64", tmp_path / "engine" / "llama-server"
    make(toolkit)
    make(program.parent)
    compile_c(
        "int version(void) { return 7; }",
        toolkit / "libcudart.so.12",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcudart.so.12",
    )
    compile_c("int version(void); int main(void) { return version(); }", program, str(toolkit / "libcudart.so.12"))
    bare = {"PATH": "/bin"}
    assert subprocess.run([program], env=bare, check=False, capture_output=True).returncode == 127
    env = with_libraries(bare, runtime_libraries(program, {"CUDA_HOME": str(tmp_path / "toolkit")}, (), [], tmp_path))
    assert subprocess.run([program], env=env, check=False).returncode == 7


def compile_c(text: str, made: Path, *arguments: str) -> None:
    source = made.parent / f"{made.name}.c"
    source.write_text(text)
    subprocess.run(["cc", str(source), *arguments, "-o", str(made)], check=True, timeout=PATIENCE)
