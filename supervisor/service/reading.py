"""Models, read: their headers from the disk or from the hub, with what earlier starts of them showed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from supervisor.core.models.registry import ModelEntry
from supervisor.demo.aside import make_demo_model
from supervisor.files.header_cache import HeaderCache
from supervisor.hub.models import Chosen
from supervisor.hub.threads import ask_hub
from supervisor.llamacpp.program import Program
from supervisor.models.fetch import Fetcher
from supervisor.models.info import ModelInfo, read_info
from supervisor.planning.known import Known
from supervisor.planning.learning import Learning


class Reading:
    """Reads one model. What blocks is done in a thread beside the loop.

    Args:
        headers: remembers headers.
        cache: the folder in which the built-in model is made.
    """

    def __init__(
        self, fetcher: Fetcher, program: Program, learning: Learning, headers: HeaderCache, cache: Path
    ) -> None:
        self._fetcher = fetcher
        self._program = program
        self._learning = learning
        self._headers = headers
        self._cache = cache

    async def on_disk(self, entry: ModelEntry) -> Known:
        """A model of which the file is here; the built-in one is made where it is not.

        Raises ModelFileError, ShardMissing and their like.
        """
        path = Path(entry.path) if entry.path is not None else await make_demo_model(self._cache)
        return await asyncio.to_thread(self._on_disk, entry, path)

    async def of_hub(self, entry: ModelEntry) -> Known:
        """A model of the hub, without a download. Raises as `Fetcher.info`."""
        here = await asyncio.to_thread(self._fetcher.here, entry)
        if here is not None:
            return await asyncio.to_thread(self._known, *here)
        return await ask_hub(self._of_hub, entry)

    async def variant(self, entry: ModelEntry, chosen: Chosen) -> Known:
        """One variant of a repository, as the model that it would be. Raises as `Fetcher.of`."""
        info = await ask_hub(self._fetcher.of, entry, chosen)
        return await asyncio.to_thread(self._known, entry, info)

    def _on_disk(self, entry: ModelEntry, path: Path) -> Known:
        return self._known(entry, read_info(path, entry.options, self._headers))

    def _of_hub(self, entry: ModelEntry) -> Known:
        return self._known(*self._fetcher.info(entry))

    def _known(self, entry: ModelEntry, info: ModelInfo) -> Known:
        found = self._program.usable()
        if found is None:
            return Known(entry, info)
        learned = self._learning.observations(info.identity)
        return Known(entry, info, learned, self._program.digest(found), found.able.build)
