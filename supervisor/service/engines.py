"""The installations of `llama-server`: shown, chosen, made. Clients choose by name, never by path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from pydantic import TypeAdapter

from supervisor.errors import EngineNotFound
from supervisor.llamacpp.install import InstallRequest
from supervisor.llamacpp.progress import Progress, Report
from supervisor.llamacpp.store import EngineStore, Manifest
from supervisor.system.refusal import refused
from supervisor.system.shared import Shared

Make = Callable[[InstallRequest, Report], Awaitable[Manifest]]
"""Installs one. Cancelling it ends the compilers."""

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
    """Shows, chooses and makes. What is chosen counts for the next loads; engines that run stay what they are."""

    store: EngineStore
    make: Make
    _lists: Shared[dict[str, Any]] = field(default_factory=Shared)

    async def all(self) -> dict[str, Any]:
        """Return `EngineList` as JSON."""
        return await self._lists.get(partial(asyncio.to_thread, self._all))

    async def choose(self, name: str) -> dict[str, Any]:
        """Use the one of this name from now on; return all. Raises EngineNotFound."""
        await asyncio.to_thread(self._choose, name)
        _log.info("engine_chosen", name=name)
        return await self.all()

    async def made(self, wanted: InstallRequest) -> AsyncIterator[Progress]:
        """Install one and yield how it goes, the newest step only. Whoever stops listening ends it.

        Raises EngineInstallFailed and its like, SystemRefused.
        """
        steps = _Newest()
        making = asyncio.ensure_future(self.make(wanted, steps.put))
        making.add_done_callback(lambda _: steps.wake())
        try:
            while not making.done():
                step = await steps.next()
                if step is not None:
                    yield step
            _log.info("engine_installed", name=making.result().name)
        except OSError as error:
            raise refused(error) or error from error
        finally:
            making.cancel()
            await asyncio.wait({making})

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


class _Newest:
    """Steps as they come, from any thread; one that nobody has read yet is replaced."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._come = asyncio.Event()
        self._step: Progress | None = None

    def put(self, step: Progress) -> None:
        """Take a step."""
        self._step = step
        self._loop.call_soon_threadsafe(self._come.set)

    def wake(self) -> None:
        """Let whoever waits look around."""
        self._come.set()

    async def next(self) -> Progress | None:
        """Wait; return the newest step, or None where only somebody woke us."""
        await self._come.wait()
        self._come.clear()
        step, self._step = self._step, None
        return step


_JSON = TypeAdapter(EngineList)
