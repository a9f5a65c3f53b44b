"""Find a `llama-server` that runs here.

Order: what was asked for (`--engine`, configuration), the environment, the one chosen with `engine use`,
another one that we installed, PATH, the usual build folders, one installed with --no-use. What a person named must
work; what is merely lying around is passed over, with the reason kept for `engine which`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.errors import EngineNotFound, EngineUnusable
from supervisor.llamacpp.probe import capabilities
from supervisor.llamacpp.store import SERVER, EngineStore
from supervisor.system.paths import Places

ENVIRONMENT = ("SUPERVISOR_LLAMA_SERVER", "LLAMA_SERVER_PATH")
_BUILD_FOLDERS = ("llama.cpp/build/bin", "build/bin", "bin")
_HOME_BUILD_FOLDERS = ("llama.cpp/build/bin",)


@dataclass(frozen=True)
class EngineBinary:
    """A `llama-server` and why it was taken.

    source: `option`, the environment variable's name, `chosen`, `installed`, `path` or `build-folder`.
    """

    path: Path
    source: str


@dataclass(frozen=True)
class Skipped:
    """A candidate that was passed over."""

    path: Path
    source: str
    reason: str


@dataclass(frozen=True)
class Located:
    """The result of a search; `found` is None where nothing usable is on this machine."""

    found: EngineBinary | None
    capabilities: Capabilities | None
    skipped: tuple[Skipped, ...]


def capability_cache(places: Places) -> Path:
    """Return the file in which `probe.capabilities` keeps what binaries said."""
    return places.cache / "capabilities.json"


def locate(places: Places, env: Mapping[str, str], explicit: str | None) -> EngineBinary:
    """Return the engine to use.

    Raises EngineNotFound, saying what to run, and EngineUnusable where the one that was named does not work.
    """
    result = search(places, env, explicit)
    if result.found:
        return result.found
    reasons = "".join(f"\n  {s.path} ({s.source}): {s.reason}" for s in result.skipped)
    raise EngineNotFound(
        "no usable llama-server on this machine; run `supervisor engine install`, or name one with --engine or "
        f"{ENVIRONMENT[0]}{reasons}"
    )


def search(places: Places, env: Mapping[str, str], explicit: str | None, *, cwd: Path | None = None) -> Located:
    """Search likewise, and tell what was passed over; raises only for an engine that was named."""
    cache_file = capability_cache(places)
    store = EngineStore(places.engines)
    named = _named(store, env, explicit)
    if named:
        return Located(named, capabilities(named.path, cache_file), ())
    skipped: list[Skipped] = []
    seen: set[Path] = set()
    for candidate in _candidates(store, env, cwd or Path.cwd()):
        if candidate.path in seen:
            continue
        seen.add(candidate.path)
        try:
            return Located(candidate, capabilities(candidate.path, cache_file), tuple(skipped))
        except EngineUnusable as error:
            skipped.append(Skipped(candidate.path, candidate.source, error.message))
    return Located(None, None, tuple(skipped))


def _named(store: EngineStore, env: Mapping[str, str], explicit: str | None) -> EngineBinary | None:
    if explicit:
        return EngineBinary(_server_at(explicit, store, "--engine"), "option")
    for variable in ENVIRONMENT:
        if env.get(variable):
            return EngineBinary(_server_at(env[variable], store, variable), variable)
    return None


def _server_at(given: str, store: EngineStore, origin: str) -> Path:
    """Return the binary that a file, a folder or the name of an installed engine means."""
    path = Path(os.path.expanduser(given)).absolute()
    there = [candidate for candidate in (path, path / SERVER, path / "bin" / SERVER) if os.path.isfile(candidate)]
    is_name = os.path.basename(given) == given and given not in {os.curdir, os.pardir}
    if is_name:  # it says nothing of the folder where it is looked for
        there = [store.binary(given), *(candidate for candidate in there if _only_ours(candidate))]
    for candidate in there:
        if os.path.isfile(candidate):
            return candidate
    raise EngineNotFound(
        f"{origin} names {given!r}, but there is no llama-server; give a file, its folder (./NAME for one "
        "in this folder), or a name from `supervisor engine list`",
        param="engine",
    )


def _candidates(store: EngineStore, env: Mapping[str, str], cwd: Path) -> Iterator[EngineBinary]:
    current = store.chosen().current
    if current:
        yield EngineBinary(store.binary(current), "chosen")
    yield from _installed(store, aside=False)
    for folder in env.get("PATH", "").split(os.pathsep):
        if folder and (Path(folder) / SERVER).is_file():
            yield EngineBinary(Path(folder) / SERVER, "path")
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    bases = [cwd / name for name in _BUILD_FOLDERS] + [home / name for name in _HOME_BUILD_FOLDERS]
    for base in bases:
        found = (base / SERVER).resolve()  # a link on the way may lead elsewhere tomorrow
        if found.is_file() and _only_ours(found):
            yield EngineBinary(found, "build-folder")
    yield from _installed(store, aside=True)


def _installed(store: EngineStore, *, aside: bool) -> Iterator[EngineBinary]:
    for manifest in store.engines():
        if manifest.aside == aside:
            yield EngineBinary(store.binary(manifest.name), "installed")


def _only_ours(path: Path) -> bool:
    """Tell whether nobody but this user and root can put something else in the place of a file. Blocks.

    Each folder above it counts, and each link on the way: the working folder may be a shared one, and to run what a
    stranger left there would be to run the stranger. Into the folder of the file itself nobody may put anything, as a
    program loads what lies beside it. A group that may write is trusted.
    """
    if not hasattr(os, "getuid"):
        return True
    try:
        real = path.resolve(strict=True)
        links = [one for one in (path, *path.parents) if one.is_symlink()]
        above = all(_only_ours_change(one) for one in (real, *real.parents, *links, *(link.parent for link in links)))
        return above and not real.parent.stat().st_mode & stat.S_IWOTH
    except (OSError, RuntimeError):  # a loop of links, or what is not ours to see
        return False


def _only_ours_change(path: Path) -> bool:
    found = path.lstat()
    open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    return found.st_uid in {0, os.getuid()} and (stat.S_ISLNK(found.st_mode) or not open_to_all)
