"""The logs that people may read: the daemon's own, and those of models."""

from __future__ import annotations

from supervisor.core.models.registry import Registry
from supervisor.engines.log import OutputLog
from supervisor.service.enginelogs import EngineLogs


class Logs:
    """Finds them. `own`: the daemon's."""

    def __init__(self, own: OutputLog, engines: EngineLogs, registry: Registry) -> None:
        self._own = own
        self._engines = engines
        self._registry = registry

    def of(self, model: str | None) -> OutputLog:
        """The log of a model's engines, also of one that failed and was forgotten, or the daemon's own.

        Raises ModelNotFound.
        """
        if model is None:
            return self._own
        if model not in self._registry and model in self._engines:
            return self._engines.of(model)
        return self._engines.of(self._registry.find(model).id)
