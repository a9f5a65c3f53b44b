"""Put an engine on this machine: by the first route that works, tried out before it is used.

Routes: `release` (the official archive for this machine), `registry` (source from the Python package index),
`git` (source from the repository), or the absolute path of a source folder. Everything is made in a scratch folder
and moved into place whole; an engine that fails its trial never arrives.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from supervisor.errors import BuildFailed, BuildToolMissing, EngineInstallFailed, EngineUnusable, SupervisorError
from supervisor.llamacpp.archive import unpack_all
from supervisor.llamacpp.build import BuildPlan, compile_engine, default_jobs
from supervisor.llamacpp.cuda import CudaToolkit, architectures, cuda_toolkit
from supervisor.llamacpp.download import fetch, file_digest, make_client
from supervisor.llamacpp.lock import engine_lock
from supervisor.llamacpp.machine import AUTO, Machine, backend_to_build, backend_to_download, survey
from supervisor.llamacpp.probe import capabilities
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.release import BASE_VARIABLE, Platform, find_release
from supervisor.llamacpp.source import GIT, REGISTRY, Source, from_folder, from_git, from_registry
from supervisor.llamacpp.store import SERVER, EngineStore, Manifest
from supervisor.llamacpp.toolchain import Tools, build_tools, check_compilers, read_os_release
from supervisor.llamacpp.versions import DEFAULT_BUILD, LEAST_VULKAN_HEADERS, TAG
from supervisor.llamacpp.vulkan import check_vulkan
from supervisor.system.owned import keep_newest
from supervisor.system.paths import Places

_LOGS = 20  # of installations that are kept

RELEASE = "release"
ALL_ROUTES = (RELEASE, REGISTRY, GIT)

SmokeTest = Callable[[Path], Awaitable[None]]
"""Tries a new binary out; raises EngineUnusable."""


@dataclass(frozen=True)
class InstallRequest:
    """A wish for an engine. `use`: choose it afterwards; `wait`: for another installer, instead of failing."""

    routes: tuple[str, ...] = ALL_ROUTES
    backend: str = AUTO
    jobs: int | None = None
    use: bool = True
    wait: bool = False


@dataclass(frozen=True)
class _Workshop:
    """The parts that every route needs."""

    store: EngineStore
    env: Mapping[str, str]
    request: InstallRequest
    machine: Machine
    log: Path
    report: Report


@dataclass(frozen=True)
class _Made:
    """An engine in the scratch folder: the folder of programs, and what is known of it."""

    programs: Path
    build: int | None
    commit: str | None
    backend: str
    source: str
    recipe: str | None = None


async def install(
    places: Places,
    env: Mapping[str, str],
    request: InstallRequest,
    *,
    smoke_test: SmokeTest,
    progress: Report,
) -> Manifest:
    """Install an engine, holding the lock.

    Raises BuildLocked, BuildToolMissing, BuildFailed, or EngineInstallFailed with what each route said. Cancelling
    ends the compilers and leaves nothing but the log.
    """
    store = EngineStore(places.engines)
    async with engine_lock(store.lock_file, wait=request.wait, report=progress):
        return await _by_routes(store, env, request, smoke_test, progress)


async def install_if_missing(
    places: Places,
    env: Mapping[str, str],
    missing: Callable[[], bool],
    *,
    smoke_test: SmokeTest,
    progress: Report,
) -> None:
    """Install an engine unless `missing`, asked when nobody else is installing any more, says that one is there.

    Raises as `install` does, except BuildLocked: it waits.
    """
    store = EngineStore(places.engines)
    async with engine_lock(store.lock_file, wait=True, report=progress):
        if await asyncio.to_thread(missing):
            await _by_routes(store, env, InstallRequest(), smoke_test, progress)


async def _by_routes(
    store: EngineStore, env: Mapping[str, str], request: InstallRequest, smoke_test: SmokeTest, report: Report
) -> Manifest:
    store.clear_scratch()
    machine = await asyncio.to_thread(survey, env)
    shop = _Workshop(store, env, request, machine, _new_log(store), report)
    failures: list[tuple[str, SupervisorError]] = []
    for route in request.routes:
        try:
            return await _by_route(shop, route, smoke_test)
        except (EngineInstallFailed, EngineUnusable) as error:
            failures.append((route, error))
            report(Progress("route", None, f"{route}: {error.message}"))
            if isinstance(error, BuildToolMissing | BuildFailed):
                break  # another source of the same code would not compile either
    raise _summary(failures)


async def _by_route(shop: _Workshop, route: str, smoke_test: SmokeTest) -> Manifest:
    scratch = shop.store.new_scratch("engine")
    try:
        made = await (_download(shop, scratch) if route == RELEASE else _build(shop, route, scratch))
        folder = scratch / "engine"
        folder.mkdir()
        os.rename(made.programs, folder / "bin")
        manifest = await asyncio.to_thread(_describe, made, folder / "bin" / SERVER, scratch)
        shop.report(Progress("smoke-test", None, f"trying {manifest.name} out"))
        await smoke_test(folder / "bin" / SERVER)
        placed = shop.store.place(folder, replace(manifest, aside=not shop.request.use))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if shop.request.use:
        shop.store.choose(placed.name)
    return placed


async def _download(shop: _Workshop, scratch: Path) -> _Made:
    backend = backend_to_download(shop.machine, shop.request.backend)
    shop.report(Progress("release", None, f"looking for the official {TAG} archive for {backend}"))
    platform = Platform(shop.machine.system, shop.machine.architecture, shop.machine.cuda)
    async with make_client(shop.env) as client:
        archives = await find_release(client, shop.env.get(BASE_VARIABLE), TAG, platform, backend)
        packed = [await fetch(client, archive, shop.store.downloads, shop.report) for archive in archives]
    for number, archive in enumerate(packed):
        shop.report(Progress("unpack", None, archive.name))
        await unpack_all(archive, scratch / f"archive-{number}")
    found = sorted((scratch / "archive-0").rglob(SERVER))
    if not found:
        raise EngineInstallFailed(f"{packed[0].name} holds no {SERVER}")
    programs = found[0].parent
    for number in range(1, len(packed)):
        for library in (scratch / f"archive-{number}").rglob("*"):
            if not library.is_dir() and not (programs / library.name).exists():
                os.rename(library, programs / library.name)
    return _Made(programs, DEFAULT_BUILD, None, backend, RELEASE)


async def _build(shop: _Workshop, route: str, scratch: Path) -> _Made:
    backend = backend_to_build(shop.machine, shop.request.backend)
    check_compilers(shop.machine, backend, shop.env, read_os_release())
    tools = await build_tools(shop.store, shop.env, shop.log, shop.report)
    env = await _vulkan_env(shop, route, tools) if backend == "vulkan" else shop.env
    cuda = await _cuda(shop) if backend == "cuda" else None
    source = await _source(shop, route, scratch)
    plan = BuildPlan(
        source,
        backend,
        shop.machine,
        tools,
        shop.request.jobs or default_jobs(),
        cuda=cuda,
        architectures=architectures(shop.machine, shop.env),
        recipes=shop.store.recipes(),
    )
    built = await compile_engine(plan, scratch, env, shop.log, shop.report)
    return _Made(built.programs, source.build, source.commit, backend, source.origin, built.recipe)


async def _vulkan_env(shop: _Workshop, route: str, tools: Tools) -> Mapping[str, str]:
    """Check that all is there to build for Vulkan; what a folder of the user's needs of the headers nobody knows."""
    least = LEAST_VULKAN_HEADERS if route in ALL_ROUTES else None
    return await check_vulkan(shop.store, tools, shop.env, shop.log, least, read_os_release())


async def _cuda(shop: _Workshop) -> CudaToolkit:
    return await cuda_toolkit(shop.store, shop.machine, shop.env, shop.log, shop.report)


async def _source(shop: _Workshop, route: str, scratch: Path) -> Source:
    if route == REGISTRY:
        return await from_registry(shop.store, shop.env, scratch, shop.report)
    if route == GIT:
        return await from_git(shop.env, scratch, shop.log, shop.report)
    return await from_folder(Path(route), shop.env)


def _describe(made: _Made, binary: Path, scratch: Path) -> Manifest:
    """Make the manifest. The binary is asked, so one that cannot even say its version ends here."""
    said = capabilities(binary, scratch / "capabilities.json")
    build = said.build or made.build
    kind = f"b{build}" if build else "local"
    suffix = f"-{RELEASE}" if made.source == RELEASE else ""
    return Manifest(
        name=f"{kind}-{made.backend}{suffix}",
        build=build,
        commit=said.commit or made.commit,
        backend=made.backend,
        source=made.source,
        sha256=file_digest(binary),
        made_at=int(time.time()),
        recipe=made.recipe,
    )


def _new_log(store: EngineStore) -> Path:
    store.logs.mkdir(parents=True, exist_ok=True)
    keep_newest(store.logs.glob("install-*.log"), _LOGS - 1)
    name = f"install-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    numbered = (store.logs / f"{name}-{number}.log" for number in count(1))
    return next(path for path in numbered if not path.exists())


def _summary(failures: list[tuple[str, SupervisorError]]) -> SupervisorError:
    """Make one error for all routes, of the kind of the last: the last is the one that a person can mend."""
    if len(failures) == 1:
        return failures[0][1]
    told = "".join(f"\n  {route}: {error.message}" for route, error in failures)
    last = failures[-1][1]
    kind = type(last) if isinstance(last, BuildToolMissing | BuildFailed) else EngineInstallFailed
    return kind(f"no route to an engine worked:{told}", log_lines=last.log_lines)
