"""Fetch an archive to disk; nothing with another digest than the expected one ever gets its name."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import ssl
import stat
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit, urlunsplit

import certifi
import httpx

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.progress import Progress, Report
from supervisor.system.outside import Answer, Limits, OutOfBounds, TooSlow, asked, bounded_client, get, keeping_up

_ATTEMPTS = 3
_PATIENCE = 60.0  # seconds in which 64 KiB of an archive have to come
_MOST = 4 << 30  # bytes of an archive: three times the largest there is
_PAGE = Limits(size=16 << 20, seconds=60.0)
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,254}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RETRY_SECONDS = 0.3
_CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class Archive:
    """A file to fetch; `sha256` is lower-case hex; `url` may carry credentials and is never shown whole.

    Raises EngineInstallFailed for a name or a digest that is none.
    """

    name: str
    url: str
    sha256: str

    def __post_init__(self) -> None:
        if not is_archive(self.name, self.sha256):
            raise EngineInstallFailed(f"{self.name[:80]!a} with the sha256 {self.sha256[:80]!a} is not an archive")


def is_archive(name: str, sha256: str) -> bool:
    """Tell whether a file could be called so, and a digest could be one."""
    return bool(_NAME.fullmatch(name) and _SHA256.fullmatch(sha256))


def is_web(url: str) -> bool:
    """Tell whether this is the address of something on the web."""
    try:
        return urlsplit(url).scheme in {"http", "https"}
    except ValueError:
        return False


def make_client(env: Mapping[str, str], *, connect_seconds: float = 10.0) -> httpx.AsyncClient:
    """Make a client that trusts what pip would trust, and uses the proxies of the process's environment.

    Idle connections fail after 60 s; `connect_seconds` is short enough to go on to the next route.
    """
    bundle = next((env[name] for name in _CERTIFICATE_VARIABLES if Path(env.get(name) or "/").is_file()), None)
    trust = ssl.create_default_context(cafile=bundle)
    if bundle is None:
        trust.load_verify_locations(cafile=certifi.where())
    return bounded_client(httpx.Timeout(60.0, connect=connect_seconds), trust)


async def ask(client: httpx.AsyncClient, url: str, accept: str, limits: Limits = _PAGE) -> Answer:
    """Fetch a page of an index or of the release API. Raises EngineInstallFailed for anything but a page."""
    where = without_credentials(url)
    try:
        answer = await get(client, url, limits, {"Accept": accept})
    except OutOfBounds as error:
        raise EngineInstallFailed(f"{where} {error}") from error
    except (httpx.RequestError, httpx.InvalidURL) as error:
        raise EngineInstallFailed(f"{where} is not reachable: {explain(error)}") from error
    if answer.status != httpx.codes.OK:
        raise EngineInstallFailed(f"{where} answered {answer.status}")
    return answer


def without_credentials(url: str) -> str:
    """Return the URL as it may be shown or logged."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def local_path(url: str) -> Path | None:
    """Return the path that a `file://` URL means; None for any other URL."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


async def fetch(
    client: httpx.AsyncClient, archive: Archive, folder: Path, report: Report, patience: float = _PATIENCE
) -> Path:
    """Put the archive on disk in `folder`; one that is there already is used if its digest is right.

    Raises EngineInstallFailed (no answer, refused, truncated, too slow, too large, wrong digest); a partial file never
    stays. `patience`: seconds in which 64 KiB have to come.
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
        digest = await _with_retries(client, archive, part, report, patience)
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
    """Return the file's sha256 in lower-case hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


async def _with_retries(
    client: httpx.AsyncClient, archive: Archive, part: Path, report: Report, patience: float
) -> str:
    where = without_credentials(archive.url)
    attempt = 1
    while True:
        try:
            return await _stream_to(client, archive, part, report, patience)
        except TooSlow as error:
            raise EngineInstallFailed(f"the download from {where} broke off: it {error}") from error
        except OutOfBounds as error:
            raise EngineInstallFailed(f"{where} {error}") from error
        except (httpx.RequestError, httpx.InvalidURL) as error:
            if attempt == _ATTEMPTS or not isinstance(error, httpx.TransportError) or _is_final(error):
                raise EngineInstallFailed(f"the download from {where} broke off: {explain(error)}") from error
        await asyncio.sleep(_RETRY_SECONDS * attempt)
        attempt += 1


def explain(error: Exception) -> str:
    """Put the error in words; httpx's timeouts carry none."""
    return str(error) or type(error).__name__


def _is_final(error: httpx.TransportError) -> bool:
    return isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol)


async def _stream_to(client: httpx.AsyncClient, archive: Archive, part: Path, report: Report, patience: float) -> str:
    local = local_path(archive.url)
    with part.open("wb") as sink:
        if local:
            await asyncio.to_thread(_copy_local, local, sink)
        else:
            async for chunk in _read_remote(client, archive, report, patience):
                sink.write(chunk)
    return await asyncio.to_thread(file_digest, part)


async def _read_remote(
    client: httpx.AsyncClient, archive: Archive, report: Report, patience: float
) -> AsyncIterator[bytes]:
    done = 0
    async with asked(client, archive.url, {}, patience) as answer:
        if answer.status_code != httpx.codes.OK:
            where = without_credentials(archive.url)
            raise EngineInstallFailed(f"{where} answered {answer.status_code}")
        told = answer.headers.get("Content-Length", "")
        total = int(told) if told.isdecimal() and told.isascii() else 0
        async for chunk in keeping_up(answer, patience):
            done += len(chunk)
            if max(done, total) > _MOST:
                raise OutOfBounds(f"sends more than {_MOST >> 30} GiB")
            report(_progress(archive.name, done, total))
            yield chunk


def _copy_local(path: Path, sink: BinaryIO) -> None:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST:
            raise EngineInstallFailed(f"{path} is not a file of at most {_MOST >> 30} GiB")
        with path.open("rb") as stream:
            shutil.copyfileobj(stream, sink)
    except OSError as error:
        raise EngineInstallFailed(f"{path} cannot be read: {error.strerror}") from error


def _progress(name: str, done: int, total: int) -> Progress:
    megabytes = f"{name}: {done / 1e6:.1f} MB" + (f" of {total / 1e6:.1f} MB" if total else "")
    return Progress("download", min(1.0, done / total) if total else None, megabytes)
