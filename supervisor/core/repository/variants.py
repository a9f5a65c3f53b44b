"""Sort a repository's files into variants of models with their parts, projectors, draft models and adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from supervisor.core.repository.names import Kind, base_of, folder_of, kind_of, quant_of, shard_of, stem_of
from supervisor.core.repository.quality import rank


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
    missing: tuple[str, ...] = ()
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


@dataclass(frozen=True, slots=True)
class Catalog:
    """The sorted files of a repository; variants in the order of quality, the rest by path."""

    variants: tuple[Variant, ...] = ()
    projectors: tuple[RepoFile, ...] = ()
    drafts: tuple[RepoFile, ...] = ()
    adapters: tuple[RepoFile, ...] = ()
    others: tuple[RepoFile, ...] = ()


def catalog_of(files: Iterable[RepoFile]) -> Catalog:
    """Sort the files of one revision. Their order does not change the answer."""
    kinds: dict[Kind, list[RepoFile]] = {kind: [] for kind in Kind}
    for file in sorted(files, key=lambda file: file.path):
        kinds[kind_of(file.path)].append(file)
    return Catalog(
        _named(_grouped(kinds[Kind.MODEL])),
        tuple(kinds[Kind.PROJECTOR]),
        tuple(kinds[Kind.DRAFT]),
        tuple(kinds[Kind.ADAPTER]),
        tuple(kinds[Kind.OTHER]),
    )


def _grouped(files: Iterable[RepoFile]) -> list[Variant]:
    groups: dict[tuple[str, str, int], dict[int, RepoFile]] = {}
    for file in files:
        shard = shard_of(file.path)
        key = (folder_of(file.path), shard.prefix if shard else stem_of(file.path), shard.count if shard else 0)
        groups.setdefault(key, {})[shard.number if shard else 1] = file
    return [_variant(parts, count) for (_, _, count), parts in groups.items()]


def _variant(parts: dict[int, RepoFile], count: int) -> Variant:
    present = tuple(parts[number] for number in sorted(parts))
    path = present[0].path
    missing = tuple(_shard_name(path, number) for number in range(1, count + 1) if number not in parts)
    return Variant("", quant_of(path), present, missing, base_of(path))


def _shard_name(path: str, number: int) -> str:
    """Return the path of another part of the same split model."""
    shard, folder = shard_of(path), folder_of(path)
    name = shard.name_of(number) if shard else path
    return f"{folder}/{name}" if folder else name


def _named(variants: list[Variant]) -> tuple[Variant, ...]:
    """Return the variants with names, in the order of quality; among equals the larger first."""
    counts = Counter(variant.quant for variant in variants)
    named = [replace(one, name=one.quant if one.quant and counts[one.quant] == 1 else one.path) for one in variants]
    return tuple(sorted(named, key=lambda one: (rank(one.quant), -(one.size or 0), one.path)))


def _sum(files: Iterable[RepoFile]) -> int | None:
    sizes = [file.size for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)
