"""The hub's cache on disk, read: which files of which revision are there. Its own client writes it and removes from it.

models--OWNER--NAME/blobs/ETAG                        the contents
models--OWNER--NAME/snapshots/COMMIT/PATH             links to them
models--OWNER--NAME/refs/REVISION                     the commit of a branch or tag
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.repository import RepoFile, Variant, catalog_of
from supervisor.core.repository.forms import is_commit, is_sha256
from supervisor.hub.listing import MAIN, Repository
from supervisor.hub.partials import SUFFIX, partial_of
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import read_own

_REF_BYTES = 256


@dataclass(frozen=True)
class Cached:
    """A variant on disk.

    Attributes:
        refs: branches and tags that mean this commit.
        size: bytes of what is there.
        used: seconds since 1970, when a part was read last as far as the file system tells.
        files: the links in the snapshot, in order.
    """

    repo: str
    commit: str
    refs: tuple[str, ...]
    variant: Variant
    size: int
    used: float
    files: tuple[Path, ...]


class HubCache:
    """One cache folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, repo: str, commit: str, path: str) -> Path | None:
        """Return the path of a file of a revision; None if it is not there."""
        found = self._repo(repo) / "snapshots" / commit / path
        return found if found.is_file() else None

    def has(self, repo: str, commit: str, file: RepoFile) -> bool:
        """Tell whether a file need not be fetched: it, or its content under another name, is there."""
        if self.file(repo, commit, file.path) is not None:
            return True
        return file.etag is not None and (self._repo(repo) / "blobs" / file.etag).is_file()

    def begun(self, repo: str, file: RepoFile) -> int:
        """Return the bytes of a file's beginning that a broken-off download left."""
        if file.etag is None:
            return 0
        with suppress(OSError):
            return partial_of(self._repo(repo) / "blobs", file.etag).stat().st_size
        return 0

    def partials(self) -> list[tuple[str, Path]]:
        """Return the beginnings of contents that broken-off downloads left, with their repositories."""
        found = sorted(self.folder.glob(f"models--*--*/blobs/*{SUFFIX}"))
        return [(_id_of(path.parents[1]), path) for path in found if path.is_file() and not path.is_symlink()]

    def repositories(self, repo: str, revision: str | None) -> list[Repository]:
        """Return what is here of a repository: that revision, or all commits, the main branch first, then the newest.

        The id comes in the spelling of the folder, whatever the case asked for.
        """
        folder = self._find(repo)
        if folder is None:
            return []
        named = self._ref(folder, revision or MAIN)
        commits = [named] if named else []
        if revision is None:
            commits += [commit for commit in _newest_first(folder / "snapshots") if commit != named]
        elif is_commit(revision):
            commits = [revision]
        found = [self._repository(folder, commit, revision or MAIN) for commit in commits]
        return [one for one in found if one.files]

    def commit_of(self, repo: str, revision: str | None) -> str | None:
        """Return the commit that a branch or tag meant when it was fetched last."""
        folder = self._find(repo)
        return None if folder is None else self._ref(folder, revision or MAIN)

    def keep_ref(self, repo: str, revision: str, commit: str) -> None:
        """Note which commit a branch or tag means now, unless a name of another one is in the way."""
        if revision == commit:
            return
        place = self._repo(repo) / "refs" / revision
        with suppress(IsADirectoryError, NotADirectoryError, FileExistsError):  # `refs` beside `refs/pr/1`
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(place, commit.encode(), mode=0o666)

    def scan(self) -> list[Cached]:
        """Return every model on disk, by repository and name; a content that two revisions share is counted in both."""
        found: list[Cached] = []
        for folder in sorted(self.folder.glob("models--*--*")):
            refs = self._refs(folder)
            for commit in _newest_first(folder / "snapshots"):
                repository = self._repository(folder, commit, commit)
                for variant in catalog_of(repository.files).loadable:
                    found.append(_cached(folder, repository, refs, variant))
        return found

    def free_bytes(self) -> int:
        """Return the free bytes on the disk that the cache is on."""
        place = self.folder
        while not place.exists():
            place = place.parent
        found = os.statvfs(place)
        return found.f_bavail * found.f_frsize

    def _repo(self, repo: str) -> Path:
        return self.folder / f"models--{repo.replace('/', '--')}"

    def _find(self, repo: str) -> Path | None:
        exact = self._repo(repo)
        if exact.is_dir():
            return exact
        wanted = exact.name.lower()
        return next((path for path in self.folder.glob("models--*") if path.name.lower() == wanted), None)

    def _repository(self, folder: Path, commit: str, revision: str) -> Repository:
        snapshot = folder / "snapshots" / commit
        paths = [path for path in snapshot.rglob("*") if path.is_file()] if snapshot.is_dir() else []
        files = tuple(_repo_file(snapshot, path) for path in sorted(paths))
        return Repository(_id_of(folder), commit, revision, files)

    def _ref(self, folder: Path, revision: str) -> str | None:
        """Return the commit that a file of refs names. A cache may be shared: what is no plain file is none."""
        with suppress(OSError, UnicodeDecodeError):
            told = read_own(folder / "refs" / revision, _REF_BYTES, anybody=True).decode().strip()
            return told if is_commit(told) else None
        return None

    def _refs(self, folder: Path) -> dict[str, str]:
        """Return commits by branch or tag."""
        names = [path for path in (folder / "refs").rglob("*") if path.is_file() and not path.name.startswith(".")]
        found = {str(path.relative_to(folder / "refs")): self._ref(folder, str(path.relative_to(folder / "refs")))
                 for path in names}  # fmt: skip
        return {name: commit for name, commit in found.items() if commit}


def _cached(folder: Path, repository: Repository, refs: dict[str, str], variant: Variant) -> Cached:
    snapshot = folder / "snapshots" / repository.commit
    files = tuple(snapshot / part.path for part in variant.parts)
    stats = [file.stat() for file in files]
    named = tuple(name for name, commit in refs.items() if commit == repository.commit)
    used = max(max(stat.st_atime, stat.st_mtime) for stat in stats)
    return Cached(repository.id, repository.commit, named, variant, sum(stat.st_size for stat in stats), used, files)


def _repo_file(snapshot: Path, path: Path) -> RepoFile:
    blob = path.resolve().name
    sha = blob if is_sha256(blob) else None
    return RepoFile(
        path.relative_to(snapshot).as_posix(), path.stat().st_size, sha, blob if path.is_symlink() else None
    )


def _id_of(folder: Path) -> str:
    return folder.name.removeprefix("models--").replace("--", "/", 1)


def _newest_first(snapshots: Path) -> list[str]:
    try:
        found = [path for path in snapshots.iterdir() if path.is_dir() and is_commit(path.name)]
    except OSError:
        return []
    return [path.name for path in sorted(found, key=lambda path: -path.stat().st_mtime)]
