"""Find a model that a request names and nobody has configured: of the hub, on disk or from afar."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.config.settings import Autoload
from supervisor.core.models.registry import Registry
from supervisor.core.repository import HubReference
from supervisor.errors import InvalidRequest
from supervisor.hub.models import HubModels
from supervisor.service.loads import Loads
from supervisor.service.resolve import Asked


@dataclass(frozen=True)
class Autoloads:
    """Adds a model as a load of it would, so that a request can wait for it.

    mode: `off`: none; `disk`: one that is whole in the hub's cache; `hub`: one that is downloaded, too.
    """

    mode: Callable[[], Autoload]
    registry: Registry
    hub: HubModels
    loads: Loads

    async def __call__(self, name: str) -> str | None:
        """Return the id of the model, which is loading now; None where there is none that may be added.

        Raises as `Loads.ask`. A model that could not be loaded of late is left to those who load it by command.
        """
        reference = None if self.mode() == "off" or self.registry.was_forgotten(name) else self._reference(name)
        if reference is None:
            return None
        here = await asyncio.to_thread(self._on_disk, reference)
        if here is None:
            return await self._load(name) if self.mode() == "hub" else None
        known = self.registry.by_hub(here)  # asked for under another of its names
        return known.id if known else None if self.registry.was_forgotten(here) else await self._load(here)

    async def _load(self, target: str) -> str:
        return await self.loads.ask(Asked(target), at_once=True)

    def _reference(self, name: str) -> HubReference | None:
        try:
            return None if name.startswith("/") else self.hub.parse(name)
        except InvalidRequest:
            return None

    def _on_disk(self, reference: HubReference) -> str | None:
        """Return the one variant in the cache that is meant; None where there is none, or several could be."""
        if reference.quant is not None or reference.path is not None:
            chosen = self.hub.on_disk(reference)
            return None if chosen is None else chosen.reference
        kept = self.hub.kept(reference)
        if kept is None or len(kept.candidates) != 1:
            return None
        return kept.choice(kept.candidates[0]).reference
