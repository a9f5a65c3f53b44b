"""The files of the dashboard: one folder, `page`, read from the package."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

PAGE: Final = "index.html"
"""The file that a browser asks for first."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent. `tag`: differs for every other content, in the form of an `ETag`."""

    content: bytes
    media_type: str
    tag: str


def page_files() -> tuple[str, ...]:
    """Return the names of all files, in order."""
    return tuple(sorted(_all()))


def find(name: str) -> PageFile | None:
    """Return the file of this name; None where there is none."""
    return _all().get(name)


@cache
def _all() -> dict[str, PageFile]:
    """Read every file whose kind a browser is to be told."""
    folder = files("supervisor.ui") / "page"
    found = {one.name: one.read_bytes() for one in folder.iterdir() if _suffix(one.name) in _TYPES}
    return {name: _page_file(name, content) for name, content in found.items()}


def _page_file(name: str, content: bytes) -> PageFile:
    tag = hashlib.sha256(content).hexdigest()[:24]
    return PageFile(content, _TYPES[_suffix(name)], f'"{tag}"')


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
