"""Sort a repository's files into variants of models with their parts, projectors, draft models and adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from supervisor.core.repository.entries import Absent, RepoFile, Variant
from supervisor.core.repository.mlx import mlx_variant
from supervisor.core.repository.names import Kind, base_of, folder_of, kind_of, quant_of, shard_of, stem_of
from supervisor.core.repository.quality import rank


@dataclass(frozen=True, slots=True)
class Catalog:
    """The sorted files of a repository; variants in the order of quality, the rest by path.

    Attributes:
        mlx: the model for MLX.
        best_projectors: the projector to use of each folder that has some, and of all under None.
    """

    variants: tuple[Variant, ...] = ()
    projectors: tuple[RepoFile, ...] = ()
    drafts: tuple[RepoFile, ...] = ()
    adapters: tuple[RepoFile, ...] = ()
    others: tuple[RepoFile, ...] = ()
    mlx: Variant | None = None
    best_projectors: Mapping[str | None, RepoFile] = field(default_factory=dict)

    @property
    def loadable(self) -> tuple[Variant, ...]:
        """All models, of every format."""
        return (*self.variants, *([self.mlx] if self.mlx else ()))


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
        mlx_variant(kinds[Kind.OTHER]),
        _best_projectors(kinds[Kind.PROJECTOR]),
    )


def _best_projectors(files: Iterable[RepoFile]) -> dict[str | None, RepoFile]:
    """Return the best projector of each folder, and of all: F16, else the best quality there is."""
    found: dict[str | None, RepoFile] = {}
    for file in sorted(files, key=_usefulness):
        found.setdefault(folder_of(file.path), file)
        found.setdefault(None, file)
    return found


def _usefulness(projector: RepoFile) -> tuple[bool, tuple[int, int], str]:
    quant = quant_of(projector.path)
    return quant != "F16", rank(quant), projector.path


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
    shard = shard_of(path)
    missing = Absent(folder_of(path), shard, frozenset(parts)) if shard and len(parts) < count else ()
    return Variant("", quant_of(path), present, missing, base_of(path))


def _named(variants: list[Variant]) -> tuple[Variant, ...]:
    """Return the variants with names, in the order of quality; among equals the larger first."""
    counts = Counter(variant.quant for variant in variants)
    named = [replace(one, name=one.quant if one.quant and counts[one.quant] == 1 else one.path) for one in variants]
    return tuple(sorted(named, key=lambda one: (rank(one.quant), -(one.size or 0), one.path)))
