"""The daemon itself, as it is shown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from supervisor import __version__
from supervisor.errors import EngineNotFound, EngineUnusable
from supervisor.llamacpp.program import Program
from supervisor.service.reload import Reloader
from supervisor.service.statuses import Statuses


@dataclass(frozen=True)
class Identity:
    """Who it is.

    url: the address it listens on. secret: known to whoever may read the endpoint file. started_at: seconds since 1970.
    """

    url: str
    secret: str
    started_at: float

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return urlsplit(self.url).port or 80


class About:
    """How it is. `stopping`: whether it was told to stop."""

    def __init__(
        self,
        identity: Identity,
        program: Program,
        reloader: Reloader,
        statuses: Statuses,
        stopping: Callable[[], bool],
    ) -> None:
        self._identity = identity
        self._program = program
        self._reloader = reloader
        self._statuses = statuses
        self._stopping = stopping
        self._sees: Callable[[str], bool] | None = None

    def limited(self, sees: Callable[[str], bool]) -> About:
        """Return how it is for who sees only these models; what is wrong in the configuration names others."""
        found = About(self._identity, self._program, self._reloader, self._statuses.limited(sees), self._stopping)
        found._sees = sees
        return found

    async def status(self) -> dict[str, Any]:
        """The daemon, its engine binary and all models."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "url": self._identity.url,
            "started_at": self._identity.started_at,
            "stopping": self._stopping(),
            "config": self._config(),
            "engine": await self._engine(),
            "models": [status.to_json() for status in self._statuses.all()],
        }

    def _config(self) -> dict[str, Any]:
        found = self._reloader.status()
        return found if self._sees is None else {**found, "error": None}

    async def _engine(self) -> dict[str, Any] | None:
        try:
            found = await asyncio.to_thread(self._program.find)
        except (EngineNotFound, EngineUnusable):
            return None
        return {"path": str(found.path), "source": found.binary.source, "build": found.able.build}
