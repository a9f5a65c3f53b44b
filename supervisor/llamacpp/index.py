"""Find a source archive, llama.cpp's above all, on the Python package index that this machine is configured for.

The index is not named here: it is `SUPERVISOR_PACKAGE_INDEX`, else what uv or pip are told by the environment
or by pip's configuration, else pip's own default, which pip's help states. The archive's digest is pinned, so it
does not matter which index answers.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit, urlunsplit

import httpx
import msgspec

from supervisor.core.environment import for_builds
from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.download import Archive, ask, is_web, local_path, without_credentials
from supervisor.llamacpp.versions import Sdist
from supervisor.llamacpp.wheels import PIP

OWN_VARIABLE = "SUPERVISOR_PACKAGE_INDEX"
_MAIN_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_EXTRA_VARIABLES = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_CONFIG_LINE = re.compile(r"^(?P<section>\S+?)\.(?P<key>[\w-]+)=(?P<value>.+)$", re.MULTILINE)
_DEFAULT_INDEX = re.compile(r"--index-url.*?\(?default:?\s+(?P<url>https?://[^\s)]+)", re.DOTALL)


class _File(msgspec.Struct):
    url: str
    hashes: dict[str, str] = {}


class _Page(msgspec.Struct):
    files: list[_File]


RunPip = Callable[..., Awaitable[str]]
"""Runs pip with these arguments and gives back what it prints."""


async def run_pip(*arguments: str) -> str:
    """Return what `python -m pip ARGUMENTS` prints; wide enough that no URL is broken across lines."""
    process = await asyncio.create_subprocess_exec(
        *PIP, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={**for_builds(os.environ), "COLUMNS": "400"},
    )  # fmt: skip
    printed, _ = await process.communicate()
    return printed.decode(errors="replace")


async def index_urls(env: Mapping[str, str], pip: RunPip = run_pip) -> tuple[str, ...]:
    """Return the base URLs of the simple indexes to ask, the main one first."""
    if env.get(OWN_VARIABLE):
        return _unique(env[OWN_VARIABLE].split())
    main = [env[name] for name in _MAIN_VARIABLES if env.get(name)][:1]
    extra = [url for name in _EXTRA_VARIABLES for url in env.get(name, "").split()]
    if not main:
        configured = parse_config(await pip("config", "list"))
        main, more = configured["index-url"][:1], configured["extra-index-url"]
        extra += more
    if not main:
        default = parse_default_index(await pip("download", "--help"))
        main = [default] if default else []
    return _unique([_unnamed(url) for url in main + extra])


def parse_config(text: str) -> dict[str, list[str]]:
    """Return the index URLs in `pip config list`; one line per setting, the value as a Python literal."""
    found: dict[str, list[str]] = {"index-url": [], "extra-index-url": []}
    lines = sorted(_CONFIG_LINE.finditer(text), key=lambda line: line["section"] == "global")  # the weakest last
    for line in lines:
        if line["key"] in found:
            found[line["key"]] += _literal(line["value"]).split()
    return found


def parse_default_index(text: str) -> str | None:
    """Return the URL that `pip download --help` states as the default of --index-url."""
    found = _DEFAULT_INDEX.search(text)
    return found["url"] if found else None


async def find_source(client: httpx.AsyncClient, urls: tuple[str, ...], sdist: Sdist) -> Archive:
    """Return the location of the archive, on the first index that has it.

    Raises EngineInstallFailed with what each index said.
    """
    notes = []
    for url in urls:
        page = f"{url.rstrip('/')}/{sdist.project}/"
        try:
            text, is_json, final = await _read_page(client, page)
            read = json_links if is_json else html_links
            return await asyncio.to_thread(lambda: _pick(read(text), final, url, sdist))  # noqa: B023 - awaited here
        except EngineInstallFailed as error:
            notes.append(error.message)
    raise EngineInstallFailed("; ".join(notes) or f"no package index is configured; set {OWN_VARIABLE}")


async def _read_page(client: httpx.AsyncClient, page: str) -> tuple[str, bool, str]:
    """Return the page's text, whether it is JSON, and the URL that relative links in it start from."""
    local = local_path(page)
    if local:
        try:
            return (local / "index.html").read_text(encoding="utf-8"), False, page
        except (OSError, UnicodeDecodeError) as error:
            raise EngineInstallFailed(f"{without_credentials(page)}: no readable index page") from error
    if urlsplit(page).scheme not in {"http", "https"}:
        raise EngineInstallFailed(f"{without_credentials(page)}: not an http, https or file URL")
    answer = await ask(client, page, _ACCEPT)
    text = answer.body.decode("utf-8", "replace")
    return text, "json" in answer.headers.get("Content-Type", ""), str(answer.url)


def json_links(text: str) -> list[str]:
    """Return the file URLs of a PEP 691 page, each with its digest as the fragment."""
    try:
        files = msgspec.json.decode(text, type=_Page).files
        return [f"{file.url}#sha256={file.hashes.get('sha256', '')}" for file in files]
    except (ValueError, RecursionError) as error:
        raise EngineInstallFailed("the package index answered with JSON that is not a project page") from error


def html_links(text: str) -> list[str]:
    """Return the link targets of a PEP 503 page."""
    parser = _Links()
    try:
        parser.feed(text)
    except AssertionError as error:  # declarations that the parser has no answer to
        raise EngineInstallFailed("the package index answered with HTML that is not a project page") from error
    return parser.targets


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.targets += [value for name, value in attrs if name == "href" and value]


def _pick(links: list[str], page: str, index: str, sdist: Sdist) -> Archive:
    for link in links:
        try:
            url, fragment = urldefrag(urljoin(page, link))
        except ValueError:  # no address at all
            continue
        if urlsplit(url).path.rpartition("/")[2] not in sdist.names:
            continue
        if not is_web(url) and local_path(page) is None:  # only a folder of this machine names files of it
            continue
        stated = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        if stated not in {"", sdist.sha256}:
            raise EngineInstallFailed(f"{without_credentials(index)} has {sdist.names[0]} with another digest")
        return Archive(sdist.names[0], _with_credentials(url, index), sdist.sha256)
    raise EngineInstallFailed(f"{without_credentials(index)} has no {sdist.names[0]}")


def _with_credentials(url: str, index: str) -> str:
    """Carry the index's user and password over to its own files; to no other host."""
    parts, base = urlsplit(url), urlsplit(index)
    user, _, host = base.netloc.rpartition("@")
    if not user or (parts.scheme, parts.netloc) != (base.scheme, host):
        return url
    return urlunsplit(parts._replace(netloc=base.netloc))


def _unnamed(url: str) -> str:
    """Remove the name of `name=url`, which uv allows."""
    name, _, rest = url.partition("=")
    return rest if rest and "/" not in name else url


def _literal(value: str) -> str:
    try:
        return str(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value


def _unique(urls: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(urls))
