"""Read a model's name on a hub: `owner/repo`, `:quant`, `@revision`, a file's path, `hf://`, a page's address."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from supervisor.errors import InvalidRequest

HUB_HOSTS: Final = frozenset({"huggingface.co", "www.huggingface.co", "hf.co"})
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_REVISION = re.compile(r"refs/(?:pr/\d+|convert/\w[\w.-]*)|\w[\w.+-]*")
_MAX_REVISION = 255
"""Bytes of a revision: it names a file in the cache."""
_PAGES = frozenset({"resolve", "blob", "tree", "raw"})
_OTHER_KINDS = frozenset({"datasets", "spaces", "buckets", "kernels"})


@dataclass(frozen=True, slots=True)
class HubReference:
    """A reference to a model on a hub.

    Attributes:
        repo: `owner/name`, in the user's spelling.
        quant: as given, in any case; None: not said.
        path: of one file in the repository; None: not said.
        revision: branch, tag or commit; None: the main branch.
    """

    repo: str
    quant: str | None = None
    path: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return (
            self.repo
            + (f"@{self.revision}" if self.revision else "")
            + (f"/{self.path}" if self.path else "")
            + (f":{self.quant}" if self.quant else "")
        )


def parse_reference(text: str, hosts: Collection[str] = ()) -> HubReference | None:
    """Return the model that a text names; None where it is no hub reference but a path or an id.

    Raises InvalidRequest for one that is meant for a hub and malformed. `hosts`: further ones whose addresses count.
    """
    rest = _without_host(text, hosts)
    marked = rest is not None
    found = _parse(text if rest is None else rest)
    if marked and found is None:
        raise InvalidRequest(
            f"'{text}' does not name a model of the hub; it looks like owner/repo:Q4_K_M or owner/repo/file.gguf.",
            param="target",
        )
    return found


def is_repository(text: str) -> bool:
    """Return whether a text is `owner/name`."""
    owner, slash, name = text.partition("/")
    return bool(slash) and owner not in _OTHER_KINDS and _NAME.fullmatch(owner) is not None and _is_name(name)


def _without_host(text: str, hosts: Collection[str]) -> str | None:
    """Return what follows `hf://` or the hub's address, as `owner/repo[@revision][/path][:quant]`.

    None without either.
    """
    if text.lower().startswith("hf://"):
        return text[5:].removeprefix("models/")
    known = {*HUB_HOSTS, *hosts}
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not known & {parts.netloc.lower(), parts.hostname}:
        return None
    return _from_page(unquote(parts.path).strip("/"))


def _from_page(path: str) -> str:
    """Return `owner/repo@main/file` for `owner/repo/resolve/main/file`."""
    parts = path.split("/")
    if len(parts) > 3 and parts[2] in _PAGES:
        words = 3 if parts[3] == "refs" else 1
        revision, rest = "/".join(parts[3 : 3 + words]), parts[3 + words :]
        return "/".join([f"{parts[0]}/{parts[1]}@{revision}", *rest])
    return "/".join(parts[:2]) if len(parts) == 3 and parts[2] in _PAGES else path


def _parse(text: str) -> HubReference | None:
    owner, slash, rest = text.partition("/")
    if not slash or owner in _OTHER_KINDS or not _NAME.fullmatch(owner):
        return None
    name = re.split(r"[/:@]", rest, maxsplit=1)[0]
    if not _is_name(name):
        return None
    tail = rest[len(name) :]
    revision, tail = _revision(tail)
    path: str | None = None
    if tail.startswith("/"):
        path, tail = _path(tail[1:])
    quant = None
    if tail.startswith(":"):
        quant, at, after = tail[1:].partition("@")
        tail = at + after
        if not _QUANT.fullmatch(quant):
            return None
    if revision is None:
        revision, tail = _revision(tail)
    if tail or (path is not None and quant is not None):
        return None
    return HubReference(f"{owner}/{name}", quant, path or None, revision)


def _is_name(name: str) -> bool:
    strange = "--" in name or ".." in name or name.endswith((".git", ".gguf"))
    return bool(_NAME.fullmatch(name)) and not strange


def _revision(tail: str) -> tuple[str | None, str]:
    """Return the revision at the beginning, and the rest."""
    if not tail.startswith("@"):
        return None, tail
    match = _REVISION.match(unquote(tail[1:]))
    if match is None or len(match.group().encode()) > _MAX_REVISION:
        return None, tail
    return match.group(), unquote(tail[1:])[match.end() :]


def _path(tail: str) -> tuple[str, str]:
    """Return the file's path at the beginning, up to its `.gguf`, and the rest; a folder may be named too."""
    end = tail.lower().find(".gguf")
    cut = len(tail) if end < 0 else end + 5
    path = tail[:cut]
    unsafe = any(part in {"", ".", ".."} for part in path.split("/")) or "\\" in path or ":" in path or "@" in path
    return ("", "?") if unsafe else (path, tail[cut:])
