"""The official release archives of llama.cpp: which of them fit this machine, and where they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

import httpx
import msgspec

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.download import Archive, ask, is_archive, is_web
from supervisor.llamacpp.versions import RELEASES_URL, REPOSITORY
from supervisor.system.outside import Limits

BASE_VARIABLE = "SUPERVISOR_RELEASES_URL"
_SYSTEMS = {"linux": "ubuntu", "darwin": "macos", "win32": "win"}
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64", "s390x": "s390x"}
_BACKEND_NAMES = {"hip": "rocm", "vulkan": "vulkan"}
_ANSWER = Limits(size=16 << 20, seconds=15.0)


@dataclass(frozen=True)
class Platform:
    """The platform an engine is for: `sys.platform`, `platform.machine()`, and the newest CUDA the driver takes."""

    system: str
    machine: str
    cuda: tuple[int, int] | None = None


async def find_release(
    client: httpx.AsyncClient, base_url: str | None, tag: str, platform: Platform, backend: str
) -> tuple[Archive, ...]:
    """Return the archives that make up one engine, from the release API; the first holds the program.

    Raises EngineInstallFailed: not reachable, no such release, nothing for this platform, no digest.
    """
    url = f"{(base_url or RELEASES_URL).rstrip('/')}/repos/{REPOSITORY}/releases/tags/{tag}"
    answer = await ask(client, url, "application/vnd.github+json", _ANSWER)
    assets = _assets(answer.body)
    names = choose_assets(tuple(assets), tag, platform, backend)
    if not names:
        raise EngineInstallFailed(f"release {tag} has no {backend} archive for {platform.system} on {platform.machine}")
    return tuple(assets[name] for name in names)


def choose_assets(names: tuple[str, ...], tag: str, platform: Platform, backend: str) -> tuple[str, ...]:
    """Return the names of the archives to unpack on top of each other; empty where none fits.

    CUDA archives carry the version they were built with, and bring its libraries in an archive of their own; any
    version of the driver's own major version runs on it.
    """
    system, machine = _SYSTEMS.get(platform.system), _ARCHITECTURES.get(platform.machine.lower())
    if not system or not machine:
        return ()
    if backend == "cuda":
        return _choose_cuda(names, f"bin-{system}-cuda-", machine, platform.cuda)
    middle = _middle(system, machine, backend)
    if middle is None:
        return ()
    wanted = re.compile(rf"llama-{re.escape(tag)}-bin-{system}-{middle}{machine}\.(?:tar\.gz|zip)")
    return tuple(name for name in names if wanted.fullmatch(name))[:1]


def _middle(system: str, machine: str, backend: str) -> str | None:
    """Return a pattern for the text between system and machine in an archive's name; None: never released."""
    if system == "macos":
        return "" if backend == ("metal" if machine == "arm64" else "cpu") else None
    if backend == "cpu":
        return "cpu-" if system == "win" else ""
    if backend in _BACKEND_NAMES:
        return rf"{_BACKEND_NAMES[backend]}-(?:[\d.]+-)?"
    return None


def _choose_cuda(names: tuple[str, ...], stem: str, machine: str, cuda: tuple[int, int] | None) -> tuple[str, ...]:
    if cuda is None:
        return ()
    pattern = re.compile(rf"llama-[\w.]+-{stem}(?P<major>\d+)\.(?P<minor>\d+)-{machine}\.(?:tar\.gz|zip)")
    versions = {(int(m["major"]), int(m["minor"])): m[0] for name in names if (m := pattern.fullmatch(name))}
    usable = [version for version in versions if version[0] <= cuda[0]]
    if not usable:
        return ()
    best = max(usable)
    tail = f"{stem}{best[0]}.{best[1]}-{machine}."
    libraries = [name for name in names if name.startswith("cudart-") and tail in name]
    return (versions[best], *libraries[:1])


class _Asset(msgspec.Struct):
    name: str
    browser_download_url: str
    digest: str | None = None


class _Release(msgspec.Struct):
    assets: list[_Asset]


def _assets(body: bytes) -> dict[str, Archive]:
    """Return the release's archives by name; one without a sha256 digest, or elsewhere than on the web, is absent."""
    try:
        listed = msgspec.json.decode(body, type=_Release).assets
    except (ValueError, RecursionError) as error:
        raise EngineInstallFailed("the release API answered with something that is not a release") from error
    told = [(one.name, one.browser_download_url, (one.digest or "").removeprefix("sha256:")) for one in listed]
    return {name: Archive(name, url, digest) for name, url, digest in told if is_archive(name, digest) and is_web(url)}
