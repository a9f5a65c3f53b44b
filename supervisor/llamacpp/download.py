"""Fetch an archive to disk; nothing with another digest than the expected one ever gets its name."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import certifi
import httpx

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.progress import Progress, Report

_CHUNK = 1 << 18
_ATTEMPTS = 3
_RETRY_SECONDS = 0.3
_CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class Archive:
    """A file to fetch; `sha256` is lower-case hex; `url` may carry credentials and is never shown whole."""

    name: str
    url: str
    sha256: str


def make_client(env: Mapping[str, str], *, connect_seconds: float = 10.0) -> httpx.AsyncClient:
    """A client that trusts what pip would trust, and uses the proxies of the process's environment.

    Idle connections fail after 60 s; `connect_seconds` is short enough to go on to the next route.
    """
    bundle = next((env[name] for name in _CERTIFICATE_VARIABLES if Path(env.get(name) or "/").is_file()), None)
    trust = ssl.create_default_context(cafile=bundle)
    if bundle is None:
        trust.load_verify_locations(cafile=certifi.where())
    timeout = httpx.Timeout(60.0, connect=connect_seconds)
    return httpx.AsyncClient(verify=trust, timeout=timeout, follow_redirects=True)


def without_credentials(url: str) -> str:
    """The URL as it may be shown or logged."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def local_path(url: str) -> Path | None:
    """The path that a `file://` URL means; None for any other URL."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


async def fetch(client: httpx.AsyncClient, archive: Archive, folder: Path, report: Report) -> Path:
    """The archive on disk in `folder`; one that is there already is used if its digest is right.

    Raises EngineInstallFailed (no answer, refused, truncated, wrong digest); a partial file never stays.
    """
    target = folder / archive.name
    if target.is_file():
        if await asyncio.to_thread(file_digest, target) == archive.sha256:
            report(Progress("download", 1.0, f"{archive.name} is here already"))
            return target
        target.unlink()
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        digest = await _with_retries(client, archive, part, report)
        if digest != archive.sha256:
            raise EngineInstallFailed(
                f"{archive.name} from {without_credentials(archive.url)} has the wrong digest "
                f"(sha256 {digest}, expected {archive.sha256}); it was not used"
            )
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def file_digest(path: Path) -> str:
    """The file's sha256 in lower-case hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


async def _with_retries(client: httpx.AsyncClient, archive: Archive, part: Path, report: Report) -> str:
    attempt = 1
    while True:
        try:
            return await _stream_to(client, archive, part, report)
        except httpx.TransportError as error:
            if attempt == _ATTEMPTS or isinstance(error, httpx.ConnectError):
                where = without_credentials(archive.url)
                raise EngineInstallFailed(f"the download from {where} broke off: {explain(error)}") from error
        await asyncio.sleep(_RETRY_SECONDS * attempt)
        attempt += 1


def explain(error: httpx.TransportError) -> str:
    """The error in words; httpx's timeouts carry none."""
    return str(error) or type(error).__name__


async def _stream_to(client: httpx.AsyncClient, archive: Archive, part: Path, report: Report) -> str:
    local = local_path(archive.url)
    with part.open("wb") as sink:
        if local:
            sink.write(await asyncio.to_thread(_read_local, local))
        else:
            async for chunk in _read_remote(client, archive, report):
                sink.write(chunk)
    return await asyncio.to_thread(file_digest, part)


async def _read_remote(client: httpx.AsyncClient, archive: Archive, report: Report) -> AsyncIterator[bytes]:
    async with client.stream("GET", archive.url, headers={"Accept-Encoding": "identity"}) as answer:
        if answer.status_code != httpx.codes.OK:
            where = without_credentials(archive.url)
            raise EngineInstallFailed(f"{where} answered {answer.status_code}")
        total = int(answer.headers.get("Content-Length") or 0)
        async for chunk in answer.aiter_raw(_CHUNK):
            report(_progress(archive.name, answer.num_bytes_downloaded, total))
            yield chunk


def _read_local(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineInstallFailed(f"{path} cannot be read: {error.strerror}") from error


def _progress(name: str, done: int, total: int) -> Progress:
    megabytes = f"{name}: {done / 1e6:.1f} MB" + (f" of {total / 1e6:.1f} MB" if total else "")
    return Progress("download", min(1.0, done / total) if total else None, megabytes)
