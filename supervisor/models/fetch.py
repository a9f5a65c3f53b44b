"""Fetch models of the hub: for engines the files with their projector, for plans only the headers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import ModelEntry
from supervisor.core.repository import HubReference, catalog_of
from supervisor.errors import HubUnreachable, ModelNotFound
from supervisor.files.header_cache import HeaderCache
from supervisor.files.mlx_folder import MlxModel, read_mlx
from supervisor.hub.access import HubAccess
from supervisor.hub.download import Downloads, Progress
from supervisor.hub.models import Chosen, HubModels, check_gguf
from supervisor.hub.threads import ask_hub
from supervisor.models.info import ModelInfo, read_info, remote_info
from supervisor.system.paths import Places

Siblings: TypeAlias = tuple[tuple[str, int], ...]
"""References and sizes, as in `PlanRequest`."""

_MOST_SIBLINGS = 64  # each may be planned, for advice


@dataclass
class Fetcher:
    """The running downloads and their users. `on_change`: called when there is news of a download."""

    hub: HubModels
    headers: HeaderCache
    on_change: Callable[[], None] = lambda: None
    progress: dict[str, Progress] = field(default_factory=dict)

    async def ensure(self, entry: ModelEntry) -> tuple[ModelEntry, Siblings]:
        """Return the entry of a model of the hub with its files on disk, downloaded if missing; and its siblings.

        Raises as `HubModels.look` and `HubModels.fetch`, and NotSupportedByEngine for a model in another format.
        """
        chosen = await self.find(entry)
        check_gguf(chosen)
        vision = wants_projector(entry.options)
        try:
            local = await self.hub.fetch(chosen, vision=vision, watch=lambda shown: self._begin(entry.id, shown))
        except HubUnreachable:
            if not vision or not self.hub.is_here(chosen.repository, chosen.variant.parts):
                raise
            local = await self.hub.fetch(chosen, vision=False)  # without a network it has to do without its projector
        finally:
            self.progress.pop(entry.id, None)
        return _placed(entry, local.path, local.projector), siblings_of(chosen)

    async def ensure_mlx(self, entry: ModelEntry) -> tuple[ModelEntry, MlxModel]:
        """Return the entry of a model for MLX with its folder, downloaded if it is missing; and the model.

        Raises ModelFileError and its subclasses, and as `HubModels.look` and `HubModels.fetch`.
        """
        if entry.hub is None:
            return entry, await asyncio.to_thread(read_mlx, Path(entry.path or ""))
        chosen = await self.find(entry)
        try:
            local = await self.hub.fetch(chosen, vision=False, watch=lambda shown: self._begin(entry.id, shown))
        finally:
            self.progress.pop(entry.id, None)
        model = await asyncio.to_thread(read_mlx, local.path.parent)
        return replace(entry, path=str(model.folder)), model

    async def glance_mlx(self, entry: ModelEntry) -> tuple[ModelEntry, MlxModel]:
        """Return the same without a download; the folder is not there where the entry has no path then."""
        if entry.hub is None:
            return await self.ensure_mlx(entry)
        chosen = await self.find(entry)
        here = await asyncio.to_thread(self.hub.is_here, chosen.repository, chosen.variant.parts)
        model = await (asyncio.to_thread(self.hub.mlx, chosen) if here else ask_hub(self.hub.mlx, chosen))
        return replace(entry, path=str(model.folder) if here else None), model

    def info(self, entry: ModelEntry) -> tuple[ModelEntry, ModelInfo]:
        """Return the model as a plan needs it, without a download; its entry has a path if all is on disk. Blocks."""
        chosen = self.chosen(entry)
        check_gguf(chosen)
        vision = wants_projector(entry.options)
        return self._local(entry, chosen, vision) or (replace(entry, path=None), self.of(entry, chosen))

    def of(self, entry: ModelEntry, chosen: Chosen) -> ModelInfo:
        """Return the model of one variant, which need not be the entry's. Blocks."""
        projector = self.hub.projector(chosen) if wants_projector(entry.options) else None
        found = remote_info(self.hub.model(chosen), projector, entry.options, self.headers)
        return replace(found, siblings=siblings_of(chosen))

    def here(self, entry: ModelEntry) -> tuple[ModelEntry, ModelInfo] | None:
        """Return the same of a model that is on disk, None of any other. Asks nobody. Blocks."""
        chosen = self.hub.on_disk(self._reference(entry))
        if chosen is None:
            return None
        check_gguf(chosen)
        return self._local(entry, chosen, wants_projector(entry.options))

    async def find(self, entry: ModelEntry) -> Chosen:
        """Return the target of the entry's reference; what is on disk waits for nobody who waits for the hub."""
        here = await asyncio.to_thread(self.hub.on_disk, self._reference(entry))
        return here if here is not None else await ask_hub(self.chosen, entry)

    def chosen(self, entry: ModelEntry) -> Chosen:
        """Return the target of the entry's reference: what is on disk comes first, then the hub is asked. Blocks."""
        reference = self._reference(entry)
        here = self.hub.on_disk(reference)
        if here is not None:
            return here
        found = self.hub.look(reference)
        return found.choice(found.candidates[0])

    def _reference(self, entry: ModelEntry) -> HubReference:
        reference = self.hub.parse(entry.hub or "")
        if reference is None:
            raise ModelNotFound(f"'{entry.hub}' is no model of a hub; it looks like owner/repo:Q4_K_M.", param="target")
        return reference

    def _local(self, entry: ModelEntry, chosen: Chosen, vision: bool) -> tuple[ModelEntry, ModelInfo] | None:
        """Return entry and model where all files are on disk, else None."""
        repository, files = chosen.repository, chosen.files(vision=vision)
        found = (self.hub.cache.file(repository.id, repository.commit, file.path) for file in files)
        paths = [path for path in found if path is not None]
        if len(paths) < len(files):
            return None
        projector = paths[-1] if len(paths) > len(chosen.variant.parts) else None
        placed = _placed(entry, paths[0], projector)
        return placed, replace(read_info(paths[0], placed.options, self.headers), siblings=siblings_of(chosen))

    def _begin(self, model: str, progress: Progress) -> None:
        self.progress[model] = progress
        self.on_change()


def hub_models(
    access: HubAccess, where: Places, headers: HeaderCache, on_change: Callable[[], None] = lambda: None
) -> HubModels:
    """Return the hub, with a memory in the cache folder.

    `on_change`: called when a download has something new to tell.
    """
    downloads = Downloads(access, where.pid_records, on_change)
    return HubModels(access, downloads, headers, where.cache / "hub")


def siblings_of(chosen: Chosen) -> Siblings:
    """Return the other variants of the same model in its repository, the best ones, as far as its files are known."""
    others = catalog_of(chosen.repository.files).variants
    same = (one for one in others if one.base == chosen.variant.base and one != chosen.variant and not one.missing)
    sized = ((one, one.size) for one in same if one.size)
    return tuple((replace(chosen, variant=one).reference, size) for one, size in islice(sized, _MOST_SIBLINGS))


def wants_projector(options: LaunchOptions) -> bool:
    """Return whether the repository's projector is to be used: no other one is named, and one is wanted."""
    return options.mmproj is None and options.mmproj_auto is not False


def _placed(entry: ModelEntry, path: Path, projector: Path | None) -> ModelEntry:
    options = entry.options if projector is None else replace(entry.options, mmproj=str(projector))
    return replace(entry, path=str(path), options=options)
