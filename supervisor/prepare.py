"""From a model id to an engine that can be started: files, binary, command line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.launch import ModelFacts, build_launch
from supervisor.core.registry import ModelEntry, Registry, Source
from supervisor.engine import Engine, EngineLimits
from supervisor.engine_log import OutputLog
from supervisor.errors import ModelLoadFailed
from supervisor.llamacpp.locate import locate
from supervisor.llamacpp.probe import capabilities
from supervisor.modelfiles import open_model
from supervisor.paths import Places
from supervisor.sockets import fresh_socket


@dataclass(frozen=True)
class EngineMaker:
    """Builds engines for the pool. Slow work runs beside the event loop."""

    registry: Registry
    places: Places
    env: Mapping[str, str]
    engine_path: str | None
    limits: EngineLimits

    async def prepare(self, model_id: str) -> Engine:
        """The engine for a model, not started.

        Raises EngineNotFound, ModelFileError, ShardMissing, OptionNotSupported and their like.
        """
        entry = self.registry.find(model_id)
        path = await self.model_path(entry)
        return await asyncio.to_thread(self._build, entry, path)
