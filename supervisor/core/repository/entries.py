"""What a repository has: its files, and the models that they make."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from supervisor.core.gguf import Shard
from supervisor.core.repository.names import folder_of


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository.

    Attributes:
        path: from the top of the repository.
        size: bytes; None where the hub does not say.
        sha256: of the content, lower-case hex; None where the hub gives none.
        etag: what the file is called in the cache; None where that is not known.
    """

    path: str
    size: int | None = None
    sha256: str | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Absent(Collection[str]):
    """Paths of the parts of a split model that are not there.

    They are made when they are asked for: each of thousands of files may say that it is one of thousands.

    Attributes:
        folder: of the model. shard: one of the parts. there: the numbers of those that are there.
    """

    folder: str
    shard: Shard
    there: frozenset[int]

    def __len__(self) -> int:
        return self.shard.count - len(self.there)

    def __iter__(self) -> Iterator[str]:
        before = f"{self.folder}/" if self.folder else ""
        numbers = (number for number in range(1, self.shard.count + 1) if number not in self.there)
        return (before + self.shard.name_of(number) for number in numbers)

    def __contains__(self, path: object) -> bool:
        return any(path == one for one in self)


@dataclass(frozen=True, slots=True)
class Variant:
    """A model that can be loaded: a file, or all shards of a split one.

    Attributes:
        name: unlike all other names in the repository: the quantisation where that is enough, else the file's path.
        quant: in the usual spelling; empty where the names do not tell.
        parts: the files in order, those that are there.
        missing: paths of shards that are not.
        base: the name without quantisation: the same for variants of one model.
    """

    name: str
    quant: str
    parts: tuple[RepoFile, ...]
    missing: Collection[str] = ()
    base: str = ""

    @property
    def path(self) -> str:
        """Path of the first part."""
        return self.parts[0].path

    @property
    def folder(self) -> str:
        return folder_of(self.path)

    @property
    def size(self) -> int | None:
        """Bytes of all parts; None where one is not known."""
        return _sum(self.parts)


def _sum(files: Iterable[RepoFile]) -> int | None:
    sizes = [file.size for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)
