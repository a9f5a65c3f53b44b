"""A hub's answer about a repository → its files, every name and number of them checked."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from supervisor.core.repository import RepoFile
from supervisor.core.repository.forms import (
    is_commit,
    is_content_name,
    is_plain_path,
    is_repository,
    is_sha256,
    is_size,
    leads_elsewhere,
)
from supervisor.errors import HubError

MAIN = "main"
_MAX_FILES = 30_000
_MAX_QUOTED = 80


@dataclass(frozen=True)
class Repository:
    """One revision of a repository; `id` in the hub's own spelling, `commit` its hash."""

    id: str
    commit: str
    revision: str
    files: tuple[RepoFile, ...]
    gated: bool = False


class _Large(msgspec.Struct):
    size: int | None = None
    sha256: str | None = None
    oid: str | None = None


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    blobId: str | None = None
    lfs: _Large | None = None


class _Told(msgspec.Struct):
    sha: str
    siblings: list[_Sibling]
    id: str | None = None
    gated: bool | str | None = None


def read_listing(body: bytes, repo: str, revision: str, host: str) -> Repository:
    """Return the repository that a hub's answer describes. Raises HubError for what no hub would say.

    Files that not every system could keep are left out.
    """
    try:
        told = msgspec.json.decode(body, type=_Told)
    except (ValueError, RecursionError) as error:
        fault = str(error)[:_MAX_QUOTED]
        raise HubError(
            f"What answers at {host} does not speak like a hub ({fault}); check HF_ENDPOINT and proxies."
        ) from None
    name = told.id or repo
    if not is_repository(name):
        raise HubError(f"The hub at {host} calls {repo} {_quoted(name)}, which is not the name of a repository.")
    if not is_commit(told.sha):
        raise HubError(f"The hub at {host} gives {_quoted(told.sha)} as the commit of {name}, which is not a commit.")
    if len(told.siblings) > _MAX_FILES:
        raise HubError(f"The hub at {host} lists {len(told.siblings)} files in {name}; {_MAX_FILES} are read at most.")
    files = tuple(_file(sibling, name, host) for sibling in told.siblings if _is_kept(sibling, name, host))
    return Repository(name, told.sha, revision, files, bool(told.gated))


def as_listing(repository: Repository) -> dict[str, object]:
    """Return a repository in the form in which a hub tells it, which `read_listing` reads."""
    return {
        "id": repository.id,
        "sha": repository.commit,
        "gated": repository.gated,
        "siblings": [_sibling(file) for file in repository.files],
    }


def _sibling(file: RepoFile) -> dict[str, object]:
    large = {"lfs": {"sha256": file.sha256, "size": file.size}} if file.sha256 else {}
    return {"rfilename": file.path, "size": file.size, "blobId": file.etag, **large}


def _is_kept(sibling: _Sibling, repo: str, host: str) -> bool:
    if leads_elsewhere(sibling.rfilename):
        raise HubError(f"The hub at {host} lists a file {_quoted(sibling.rfilename)} in {repo}, which leads elsewhere.")
    return is_plain_path(sibling.rfilename)


def _file(sibling: _Sibling, repo: str, host: str) -> RepoFile:
    large = sibling.lfs or _Large()
    size = sibling.size if large.size is None else large.size
    sha = large.sha256 or large.oid
    content = sha or sibling.blobId
    for what, told, right in (
        ("size", size, size is None or is_size(size)),
        ("sha256", sha, sha is None or is_sha256(sha)),
        ("name of the content", content, content is None or is_content_name(content)),
    ):
        if not right:
            raise HubError(f"The hub at {host} gives {_quoted(told)} as the {what} of {repo}/{sibling.rfilename}.")
    return RepoFile(sibling.rfilename, size, sha, content)


def _quoted(told: object) -> str:
    """Return the beginning of what was said, in printable characters."""
    text = str(told)
    shown = ascii(text[:_MAX_QUOTED])
    return shown if len(text) <= _MAX_QUOTED else f"{shown[:-1]}…{shown[-1]}"
