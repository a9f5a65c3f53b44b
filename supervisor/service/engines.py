"""The installations of `llama-server` that there are, and the choice of one. Clients choose by name, never by path."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import TypeAdapter

from supervisor.errors import EngineNotFound
from supervisor.llamacpp.store import EngineStore

_log = structlog.get_logger()


@dataclass(frozen=True)
class EngineInstalled:
    """One of them. `made_at`: seconds since 1970. `current`, `previous`: whether it is chosen, or was before."""

    name: str
    build: int | None
    commit: str | None
    backend: str
    source: str
    made_at: int
    current: bool
    previous: bool


@dataclass(frozen=True)
class EngineList:
    """All of them, the newest build first."""

    engines: Sequence[EngineInstalled]


@dataclass(frozen=True)
class Installed:
    """Shows and chooses. What is chosen counts for the next loads; engines that run stay what they are."""

    store: EngineStore

    async def all(self) -> dict[str, Any]:
        """Return `EngineList` as JSON."""
        return await asyncio.to_thread(self._all)

    async def choose(self, name: str) -> dict[str, Any]:
        """Use the one of this name from now on; return all. Raises EngineNotFound."""
        await asyncio.to_thread(self._choose, name)
        _log.info("engine_chosen", name=name)
        return await self.all()

    def _choose(self, name: str) -> None:
        if name not in {one.name for one in self.store.engines()}:
            raise EngineNotFound(f"There is no engine '{name}'; `supervisor engine list` shows what there is.")
        self.store.choose(name)

    def _all(self) -> dict[str, Any]:
        chosen = self.store.chosen()
        engines = [
            EngineInstalled(
                name=one.name,
                build=one.build,
                commit=one.commit,
                backend=one.backend,
                source=one.source,
                made_at=one.made_at,
                current=one.name == chosen.current,
                previous=one.name == chosen.previous,
            )
            for one in self.store.engines()
        ]
        found: dict[str, Any] = _JSON.dump_python(EngineList(engines), mode="json")
        return found


_JSON = TypeAdapter(EngineList)
