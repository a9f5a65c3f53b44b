"""What somebody has just given with a load, until it shows whether an engine comes up: options, and whole models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.core.engine_output.failures import OF_LAUNCH
from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import Registry
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.errors import EngineStartFailed, ModelDoesNotFit
from supervisor.pool.pool import Pool

_FAILED = frozenset({EngineState.FAILED, EngineState.BACKOFF})
_BLAMED = OF_LAUNCH | {EngineStartFailed.code, ModelDoesNotFit.code}


@dataclass(frozen=True, slots=True)
class _Trial:
    """`before`: the options to go back to; None: the model's own. `task` waits for how the load goes."""

    before: LaunchOptions | None
    task: asyncio.Task[None]


class Trials:
    """Takes options back that a load failed for. One trial for each model: what is given meanwhile joins it."""

    def __init__(self, registry: Registry, pool: Pool) -> None:
        self._registry = registry
        self._pool = pool
        self._trials: dict[str, _Trial] = {}

    def options_before(self, model: str) -> LaunchOptions | None:
        """Return the options that a failed load goes back to; None: the model's own, or it is new."""
        if model in self._trials:
            return self._trials[model].before
        known = model in self._registry and self._registry.find(model)
        return known.options if known and known.given else None

    def begin(self, model: str, before: LaunchOptions | None) -> None:
        """The model was just told to load with the options that it has now."""
        if model not in self._trials:
            self._trials[model] = _Trial(before, asyncio.ensure_future(self._see(model, before)))

    async def _see(self, model: str, before: LaunchOptions | None) -> None:
        try:
            outcome = (await self._pool.at_rest(model)).view
        finally:
            del self._trials[model]
        failed = outcome.state in _FAILED and outcome.failure is not None and outcome.failure.code in _BLAMED
        if failed and model in self._registry and self._registry.find(model).given:
            self._registry.set_options(model, before)


class Newcomers:
    """Models that nobody configured and that have not been loaded yet: one whose load fails is forgotten.

    Args:
        forget: is told the id, and why its load failed.
    """

    def __init__(self, pool: Pool, forget: Callable[[str, str], None]) -> None:
        self._pool = pool
        self._forget = forget
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, model: str) -> None:
        """The model was just told to load for the first time."""
        if model not in self._tasks:
            self._tasks[model] = asyncio.ensure_future(self._see(model))

    async def _see(self, model: str) -> None:
        try:
            await self._pool.at_rest(model)
        finally:
            del self._tasks[model]
        view = self._pool.status(model).view  # somebody may have asked again meanwhile
        if view.state is EngineState.FAILED and view.failure is not None:
            self._forget(model, view.failure.message)

    def is_loading(self, model: str) -> bool:
        """Return whether its first load is still under way."""
        return model in self._tasks
