"""Models of the hub: where a reference leads, what is on disk of it, its header, its download."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from supervisor.core.gguf import GgufHeader
from supervisor.core.repository import (
    Catalog,
    HubReference,
    RepoFile,
    Variant,
    catalog_of,
    find,
    is_mlx,
    parse_reference,
    projector_for,
)
from supervisor.errors import HubUnreachable, NotSupportedByEngine, ShardMissing, VariantAmbiguous, VariantNotFound
from supervisor.files.header_cache import HeaderCache
from supervisor.files.mlx_folder import MlxModel, read_mlx
from supervisor.files.model_file import ModelFile, open_model
from supervisor.hub.access import HubAccess
from supervisor.hub.api import HubClient
from supervisor.hub.cachedir import Cached, HubCache
from supervisor.hub.download import Downloads, Progress
from supervisor.hub.listing import MAIN, Repository
from supervisor.hub.mlx import remote_mlx
from supervisor.hub.nearby import Nearby
from supervisor.hub.partials import SUFFIX
from supervisor.hub.ranged import fetch_headers, remote_header
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import inner_folder, keep_newest
from supervisor.system.paths import safe_name

_MAX_LISTINGS = 256
_MAX_BYTES = 64 << 20  # of all together


@dataclass(frozen=True)
class Lookup:
    """A repository that was looked at; `candidates`: the variant that was named, or all to choose from.

    note: what has to be said about how it was found.
    """

    reference: HubReference
    repository: Repository
    catalog: Catalog
    candidates: tuple[Variant, ...]
    note: str | None = None

    def choice(self, variant: Variant) -> Chosen:
        """Return one of the candidates."""
        projector = None if is_mlx(variant) else projector_for(self.catalog, variant)
        return Chosen(self.reference.revision, self.repository, variant, projector)


@dataclass(frozen=True)
class Chosen:
    """One variant of one revision; `revision`: as the user gave it."""

    revision: str | None
    repository: Repository
    variant: Variant
    projector: RepoFile | None

    @property
    def reference(self) -> str:
        """A reference that leads here, the same for every spelling."""
        by_name = self.variant.name == self.variant.quant
        quant, path = (self.variant.name, None) if by_name else (None, self.variant.path)
        return str(HubReference(self.repository.id, quant, path, self.revision))

    def files(self, *, vision: bool) -> tuple[RepoFile, ...]:
        """Return the files that have to be on disk."""
        return (*self.variant.parts, *((self.projector,) if vision and self.projector else ()))


def check_gguf(chosen: Chosen) -> None:
    """Raise NotSupportedByEngine for a variant that is none in GGUF."""
    if is_mlx(chosen.variant):
        raise NotSupportedByEngine(
            f"{chosen.repository.id} has a model for MLX, and none in GGUF, which is what this engine loads. Name it "
            f"{chosen.repository.id}:mlx, or take a repository whose name ends in -GGUF.",
            param="target",
        )


@dataclass(frozen=True)
class Local:
    """A variant on disk: the first part, and the projector where one was wanted."""

    path: Path
    projector: Path | None


@dataclass(frozen=True)
class Unfinished:
    """The beginning of a file; `reference`: of its variant, or of the repository where nobody knows better."""

    repo: str
    reference: str
    path: Path


class HubModels:
    """Looks, reads and fetches; what blocks says so.

    Args:
        headers: remembers headers.
        listings: the folder that remembers what was in a commit.
    """

    def __init__(self, access: HubAccess, downloads: Downloads, headers: HeaderCache, listings: Path) -> None:
        self.access = access
        self.downloads = downloads
        self.cache = HubCache(access.cache)
        self._client = HubClient(access)
        self._headers = headers
        self._listings = listings
        self._nearby: Nearby | None = None

    def ask_first(self, nearby: Nearby) -> None:
        """Have somebody asked for files before the hub is, and for what there is where the hub cannot be asked."""
        self._nearby = self.downloads.nearby = self._client.nearby = nearby

    def parse(self, text: str) -> HubReference | None:
        """Return the reference that a text is; None if it is none. Raises InvalidRequest."""
        return parse_reference(text, {self.access.host})

    def look(self, reference: HubReference) -> Lookup:
        """Return what the hub has, or, where it does not answer, the cache. Blocks.

        Raises as `HubClient.repository`, VariantNotFound, VariantAmbiguous, ShardMissing.
        """
        note = None
        try:
            repository = self._client.repository(reference.repo, reference.revision)
            self._keep_listing(repository)
        except HubUnreachable as error:
            there = self.cache.repositories(reference.repo, reference.revision)
            if there:
                repository, note = there[0], f"{error.message} What is in the cache is used."
            elif self._nearby is not None and (told := self._nearby.listing(reference.repo, reference.revision)):
                repository, note = told, f"{error.message} What another node has is used, by its word."
            else:
                message = f"{error.message} Nothing of {reference.repo} is in {self.cache.folder}."
                raise HubUnreachable(message) from error
        catalog = catalog_of(repository.files)
        candidates = find(catalog, repository.id, reference.quant, reference.path)
        return Lookup(reference, repository, catalog, candidates, note)

    def on_disk(self, reference: HubReference) -> Chosen | None:
        """Return the variant that a reference names, if all of it is in the cache; the network is not asked. Blocks."""
        for there in self.cache.repositories(reference.repo, reference.revision):
            known = self._listing(there) or there
            catalog = catalog_of(known.files)
            with suppress(VariantNotFound, VariantAmbiguous, ShardMissing):
                candidates = find(catalog, known.id, reference.quant, reference.path)
                if len(candidates) == 1 and self.is_here(known, candidates[0].parts):
                    return Lookup(reference, known, catalog, candidates).choice(candidates[0])
        return None

    def kept(self, reference: HubReference) -> Lookup | None:
        """Return the variants of a repository that are whole in the cache, of one commit; None if there are none.

        The network is not asked. Blocks.
        """
        for there in self.cache.repositories(reference.repo, reference.revision):
            known = self._listing(there) or there
            catalog = catalog_of(known.files)
            there_are = catalog.variants or catalog.loadable
            whole = [one for one in there_are if not one.missing and self.is_here(known, one.parts)]
            if whole:
                return Lookup(reference, known, catalog, tuple(whole))
        return None

    def is_here(self, repository: Repository, files: Sequence[RepoFile]) -> bool:
        """Tell whether all these files are in the cache."""
        return all(self.cache.file(repository.id, repository.commit, file.path) for file in files)

    def model(self, chosen: Chosen) -> ModelFile:
        """Return the header and size of a variant in GGUF, from the cache or from afar. Blocks.

        Raises NotSupportedByEngine for one in another format.
        """
        check_gguf(chosen)
        repository, variant = chosen.repository, chosen.variant
        here = self.cache.file(repository.id, repository.commit, variant.path)
        if here is not None and self.is_here(repository, variant.parts):
            return open_model(here, cache=self._headers, any_byte_order=True)
        header = remote_header(self._client, repository, variant, self._headers)
        names = tuple(Path(repository.id) / part.path for part in variant.parts)
        return ModelFile(names[0], names, header, variant.size or 0)

    def mlx(self, chosen: Chosen) -> MlxModel:
        """Return the facts of a model for MLX, from the cache or from afar. Blocks.

        Raises ModelFileError and its subclasses, and as `HubClient.repository`.
        """
        repository, variant = chosen.repository, chosen.variant
        here = self.cache.file(repository.id, repository.commit, variant.path)
        if here is not None and self.is_here(repository, variant.parts):
            return read_mlx(here.parent)
        return remote_mlx(self._client, repository, variant)

    def projector(self, chosen: Chosen) -> GgufHeader | None:
        """Return the header of the projector that goes with it. Blocks."""
        if chosen.projector is None:
            return None
        here = self.cache.file(chosen.repository.id, chosen.repository.commit, chosen.projector.path)
        if here is not None:
            return open_model(here, cache=self._headers).header
        return fetch_headers(self._client, chosen.repository, [chosen.projector], self._headers)[0]

    async def fetch(self, chosen: Chosen, *, vision: bool, watch: Callable[[Progress], None] = lambda _: None) -> Local:
        """Have it on disk; raises as `Downloads.fetch`."""
        files = chosen.files(vision=vision)
        paths = await self.downloads.fetch(chosen.repository, files, watch)
        return Local(paths[0], paths[-1] if len(files) > len(chosen.variant.parts) else None)

    def scan(self) -> list[Cached]:
        """Return what is on disk. Blocks."""
        return self.cache.scan()

    def unfinished(self) -> list[Unfinished]:
        """Return what broken-off downloads left, to be gone on with. Blocks."""
        return [
            Unfinished(repo, self._part_of(repo, path.name.removesuffix(SUFFIX)) or repo, path)
            for repo, path in self.cache.partials()
        ]

    def expected(self, repo: str, commit: str) -> dict[str, RepoFile]:
        """Return what the hub said of the files of a commit, by path; empty where nobody asked."""
        known = self._listing(Repository(repo, commit, commit, ()))
        return {file.path: file for file in known.files} if known else {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _part_of(self, repo: str, etag: str) -> str | None:
        """Return the reference of the variant that a content is part of."""
        for place in sorted(self._listings.glob(f"{safe_name(repo)}@*.json")):
            known = self._listing(Repository(repo, place.stem.rpartition("@")[2], MAIN, ()))
            for variant in catalog_of(known.files).loadable if known else ():
                if known and etag in {part.etag for part in variant.parts}:
                    return Chosen(None, known, variant, None).reference
        return None

    def _place(self, repo: str, commit: str) -> Path:
        return self._listings / f"{safe_name(repo)}@{commit}.json"

    def _keep_listing(self, repository: Repository) -> None:
        place = self._place(repository.id, repository.commit)
        with suppress(OSError):
            if place.exists():
                return
            inner_folder(self._listings)
            atomic_write(place, json.dumps(asdict(repository)).encode())
            keep_newest(self._listings.glob("*.json"), _MAX_LISTINGS, _MAX_BYTES)

    def _listing(self, there: Repository) -> Repository | None:
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            told = json.loads(self._place(there.id, there.commit).read_text("utf-8"))
            files = tuple(RepoFile(**file) for file in told["files"])
            return Repository(told["id"], told["commit"], there.revision, files, told["gated"])
        return None
