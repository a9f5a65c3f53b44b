"""Compile `llama-server` and the RPC worker from a source tree, in a scratch folder."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.errors import BuildFailed
from supervisor.llamacpp.cuda import DEFAULT_ARCHITECTURES, CudaToolkit, cuda_flags, put_beside
from supervisor.llamacpp.machine import Machine
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.recipe import add_shared, recipe
from supervisor.llamacpp.run_tool import run_tool
from supervisor.llamacpp.source import Source
from supervisor.llamacpp.store import SERVER
from supervisor.llamacpp.toolchain import Tools

_PERCENT = re.compile(r"^\[\s*(?P<percent>\d+)%\]")
_COUNT = re.compile(r"^\[(?P<done>\d+)/(?P<total>\d+)\]")
_RPC_TARGET = re.compile(r"set\(TARGET\s+([\w-]+)\)")
_TELLING = re.compile(r"error|fatal|undefined reference|not found|No such file", re.IGNORECASE)
_MOST_TOLD = 20
_BACKEND_FLAGS = {
    "cpu": (),
    "cuda": ("-DGGML_CUDA=ON",),
    "hip": ("-DGGML_HIP=ON",),
    "vulkan": ("-DGGML_VULKAN=ON",),
    "metal": ("-DGGML_METAL=ON", "-DGGML_METAL_EMBED_LIBRARY=ON"),
}
_SHARING = frozenset({"vulkan"})


@dataclass(frozen=True)
class BuildPlan:
    """The plan of a build: its source, tools and options; `jobs` compilers at once.

    cuda, architectures: NVIDIA's compiler, and the GPUs to compile for, as CMAKE_CUDA_ARCHITECTURES.
    recipes: the folders of CPU engines that are here, by their recipe.
    """

    source: Source
    backend: str
    machine: Machine
    tools: Tools
    jobs: int
    cuda: CudaToolkit | None = None
    architectures: str = DEFAULT_ARCHITECTURES
    recipes: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """The folder with the programs and their libraries, and the recipe they were made by."""

    programs: Path
    recipe: str | None


async def compile_engine(plan: BuildPlan, scratch: Path, env: Mapping[str, str], log: Path, report: Report) -> Built:
    """Configure and build. A Vulkan engine takes all but ggml from a CPU engine of the same recipe.

    Raises BuildFailed with the telling lines; the whole output is in `log`.
    """
    build = scratch / "build"
    report(Progress("configure", None, f"llama.cpp for {plan.backend}"))
    await _step(configure_command(plan, build), env, log, report)
    made_by = await asyncio.to_thread(recipe, plan.source.digest, plan.source.folder, build)
    base = plan.recipes.get(made_by or "") if plan.backend in _SHARING else None
    if base:
        report(Progress("share", None, f"{SERVER} and all but ggml are those of {base.parent.name}, built alike"))
    report(Progress("compile", 0.0, f"{plan.jobs} at a time"))
    await _step(build_command(plan, build, only_ggml=base is not None), env, log, report)
    if base:
        await asyncio.to_thread(add_shared, build / "bin", base)
    programs = _programs(build, log)
    if plan.cuda:
        await asyncio.to_thread(put_beside, plan.cuda, programs)
    return Built(programs, made_by)


def _programs(build: Path, log: Path) -> Path:
    for folder in (build / "bin", build / "bin" / "Release"):
        if (folder / SERVER).is_file():
            return folder
    raise BuildFailed(f"the build ended without a {SERVER}; its output is in {log}")


def configure_command(plan: BuildPlan, build: Path) -> list[str]:
    """cmake's first call. The number is always given: without it the binary would say 0, or count the commits of
    whatever repository encloses the folder."""
    loader = "@loader_path" if plan.machine.system == "darwin" else "$ORIGIN"
    command = [plan.tools.cmake, "-S", str(plan.source.folder), "-B", str(build)]
    if plan.tools.ninja:
        command += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={plan.tools.ninja}"]
    command += [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
        f"-DCMAKE_INSTALL_RPATH={loader}",
        "-DLLAMA_BUILD_TESTS=OFF",
        "-DLLAMA_BUILD_EXAMPLES=OFF",
        "-DLLAMA_BUILD_APP=OFF",
        "-DLLAMA_USE_PREBUILT_UI=OFF",
        "-DGGML_RPC=ON",
        f"-DLLAMA_BUILD_NUMBER={plan.source.build or 0}",
        f"-DLLAMA_BUILD_COMMIT={plan.source.commit or 'unknown'}",
        *_BACKEND_FLAGS[plan.backend],
    ]
    return [*command, *cuda_flags(plan.cuda, plan.architectures)] if plan.cuda else command


def build_command(plan: BuildPlan, build: Path, *, only_ggml: bool = False) -> list[str]:
    """Return cmake's second call: for ggml's libraries, else the server and, where the source has one, the worker."""
    targets = ["ggml"] if only_ggml else ["llama-server", *_rpc_target(plan.source.folder)]
    return [plan.tools.cmake, "--build", str(build), "--config", "Release", "--parallel", str(plan.jobs),
            "--target", *targets]  # fmt: skip


def parse_fraction(line: str) -> float | None:
    """Return the progress of a build, from a line of make (`[ 12%] …`) or ninja (`[123/456] …`)."""
    percent = _PERCENT.match(line)
    if percent:
        return min(1.0, int(percent["percent"]) / 100)
    count = _COUNT.match(line)
    if count and int(count["total"]):
        return min(1.0, int(count["done"]) / int(count["total"]))
    return None


def default_jobs() -> int:
    """Return as many compilers as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def telling_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last lines that say what went wrong, or simply the last where none stands out."""
    return (tuple(line for line in lines if _TELLING.search(line)) or lines)[-_MOST_TOLD:]


def _rpc_target(source: Path) -> tuple[str, ...]:
    """Return the worker's target: it has another name in older sources, and is missing in others."""
    try:
        text = (source / "tools" / "rpc" / "CMakeLists.txt").read_text(encoding="utf-8")
    except OSError:
        return ()
    found = _RPC_TARGET.search(text)
    return (found[1],) if found else ()


class Meter:
    """Follows a build's progress. Builds within it, as that of ggml's shader generator, count far fewer steps."""

    def __init__(self) -> None:
        self._total = 0

    def read(self, line: str) -> float | None:
        """Return how far the build is, from a line of its own that says so."""
        count = _COUNT.match(line)
        if count:
            self._total = max(self._total, int(count["total"]))
        return None if count and int(count["total"]) < self._total / 2 else parse_fraction(line)


async def _step(command: list[str], env: Mapping[str, str], log: Path, report: Report) -> None:
    meter = Meter()

    def heard(line: str) -> None:
        fraction = meter.read(line)
        if fraction is not None:
            report(Progress("compile", fraction, line.partition("] ")[2]))

    result = await run_tool(command, env=env, log=log, on_line=heard)
    if result.status != 0:
        lines = telling_lines(result.tail)
        raise BuildFailed(f"the build failed (exit status {result.status}); its output is in {log}", log_lines=lines)
