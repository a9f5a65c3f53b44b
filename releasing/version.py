"""The version and the changelog of a release, as texts."""

from __future__ import annotations

import re

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_ASSIGNED = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_UNRELEASED = re.compile(r"^## Unreleased\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class ReleaseRefused(Exception):
    """One sentence for the person who releases: what is wrong, and what to do."""


def number(version: str) -> tuple[int, int, int]:
    """Return the parts of `MAJOR.MINOR.PATCH`. Raises ReleaseRefused."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ReleaseRefused(f"{version!r} is no version; write it as 1.2.3.")
    return int(found[1]), int(found[2]), int(found[3])


def version_of(module: str) -> str:
    """Return the version that the text of supervisor/__init__.py has. Raises ReleaseRefused."""
    found = _ASSIGNED.search(module)
    if found is None:
        raise ReleaseRefused("supervisor/__init__.py has no line `__version__ = …`.")
    return found[1]


def with_version(module: str, version: str) -> str:
    """Return the module's text with another version; never an older one. Raises ReleaseRefused."""
    before = version_of(module)
    if number(version) < number(before):
        raise ReleaseRefused(f"{version} is older than {before}, which the program has.")
    return _ASSIGNED.sub(f'__version__ = "{version}"', module)


def with_release(changelog: str, version: str, day: str) -> str:
    """Return the changelog with what was unreleased under the version. Raises ReleaseRefused.

    day: as 2026-01-31.
    """
    found = _UNRELEASED.search(changelog)
    if found is None or not found["body"].strip():
        raise ReleaseRefused("CHANGELOG.md has nothing under `## Unreleased`; say there what is new.")
    if f"\n## {version} " in changelog:
        raise ReleaseRefused(f"CHANGELOG.md has a release {version} already; choose another version.")
    head, body = changelog[: found.start()], changelog[found.start("body") :]
    return f"{head}## Unreleased\n\n## {version} – {day}\n{body}"
