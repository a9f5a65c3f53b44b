"""From a model that somebody names to what is known of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.llamacpp.program import Program
from supervisor.models.fetch import Fetcher
from supervisor.planning.known import Known
from supervisor.pool.living import Living
from supervisor.service.reading import Reading
from supervisor.service.variants import Variants


class Catalogue:
    """What is known of the models there are. Of a repository the variant is chosen first, then read."""

    def __init__(
        self, registry: Registry, program: Program, fetcher: Fetcher, variants: Variants, reading: Reading
    ) -> None:
        self._registry = registry
        self._program = program
        self._fetcher = fetcher
        self._variants = variants
        self._reading = reading

    async def know(self, entry: ModelEntry, living: Living) -> Known:
        """Have the model's files here, and read them. `living`: the engines beside which it would be.

        Raises EngineNotFound, EngineUnusable, ModelFileError, ShardMissing and their like.
        """
        await asyncio.to_thread(self._program.find)
        if entry.hub is None:
            return await self._reading.on_disk(entry)
        here, siblings = await self._fetcher.ensure(await self._variants.with_variant(entry, living))
        self._registry.locate(entry.id, here.path)
        known = await self._reading.on_disk(here)
        return replace(known, info=replace(known.info, siblings=siblings))

    async def glance(self, entry: ModelEntry, living: Living) -> Known:
        """The same on a machine that may have no engine, and without a download."""
        if entry.hub is None:
            return await self._reading.on_disk(entry)
        return await self._reading.of_hub(await self._variants.with_variant(entry, living))
