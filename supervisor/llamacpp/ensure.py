"""An engine for whoever needs one now: the one that is here, else a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from supervisor.errors import EngineNotFound
from supervisor.llamacpp.install import install_if_missing
from supervisor.llamacpp.locate import EngineBinary, locate, search
from supervisor.llamacpp.progress import Report
from supervisor.system.paths import Places


async def ensure_engine(
    places: Places,
    env: Mapping[str, str],
    explicit: str | None,
    *,
    smoke_test: Callable[[Path], Awaitable[None]],
    progress: Report,
) -> EngineBinary:
    """Locate an engine, else install one; waits for another process that is installing one already.

    Raises EngineNotFound or EngineUnusable for an engine that was named, EngineInstallFailed where no route works.
    """
    try:
        return await asyncio.to_thread(locate, places, env, explicit)
    except EngineNotFound as error:
        if error.param:
            raise  # it was named: installing another would not be what was asked for

    def missing() -> bool:
        return search(places, env, explicit).found is None

    await install_if_missing(places, env, missing, smoke_test=smoke_test, progress=progress)
    return await asyncio.to_thread(locate, places, env, explicit)
