"""Tell whether the models of the start are loaded: a question of balancers, and not whether the daemon lives."""

from __future__ import annotations

from collections.abc import Callable, Collection

from supervisor.core.models.registry import Registry
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.errors import NotReady, ShuttingDown
from supervisor.pool.pool import Pool


class Readiness:
    """Whether requests can be answered without a load of a model that the configuration wants loaded.

    A model that was ready counts as ready when it has left, for idleness or by command: a request loads it again. It
    does not while it is brought back, or after it has failed.

    Args:
        stopping: whether the daemon was told to stop.
    """

    def __init__(self, registry: Registry, pool: Pool, stopping: Callable[[], bool]) -> None:
        self._registry = registry
        self._pool = pool
        self._stopping = stopping
        self._first: tuple[str, ...] | None = None

    def begin(self, models: Collection[str]) -> None:
        """Note that the models to be loaded at the start have been asked for."""
        self._first = tuple(models)

    def missing(self) -> dict[str, str]:
        """Return the models of the start that are not ready, each with its state."""
        states = {model: self._lacks(model) for model in self._first or () if model in self._registry}
        return {model: state for model, state in states.items() if state is not None}

    def check(self, *, named: bool) -> None:
        """Raise NotReady, whose message names the models if `named`, or ShuttingDown."""
        if self._stopping():
            raise ShuttingDown("The daemon is stopping.")
        if self._first is None:
            raise NotReady("The daemon is starting.")
        missing = self.missing()
        if missing:
            told = ", ".join(f"{model} ({state})" for model, state in missing.items())
            few = f"{len(missing)} of {len(self._first)} models that are loaded at the start are not ready"
            raise NotReady(f"{few}: {told}." if named else f"{few}; GET /ready says which.")

    def _lacks(self, model: str) -> str | None:
        view = self._pool.status(model).view
        if view.state is EngineState.READY:
            return None
        if view.failure is not None:
            return f"failed: {view.failure.code}"
        if not view.wanted:
            return None
        return "waiting" if view.state is None else view.state.value
