"""The logs that people may read: the daemon's own, and those of models."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.models.registry import Registry
from supervisor.engines.log import OutputLog
from supervisor.errors import Forbidden
from supervisor.service.enginelogs import EngineLogs


class Logs:
    """Finds them. `own`: the daemon's. `sees`: whether a model's is there; None: all are."""

    def __init__(
        self, own: OutputLog, engines: EngineLogs, registry: Registry, sees: Callable[[str], bool] | None = None
    ) -> None:
        self._own = own
        self._engines = engines
        self._registry = registry
        self._sees = sees

    def limited(self, sees: Callable[[str], bool]) -> Logs:
        """Return those of models that are seen; the daemon's own tells of all."""
        return Logs(self._own, self._engines, self._registry.limited(sees), sees)

    def of(self, model: str | None) -> OutputLog:
        """The log of a model's engines, also of one that failed and was forgotten, or the daemon's own.

        Raises ModelNotFound, and Forbidden for the daemon's own where not all models are seen.
        """
        if model is None:
            if self._sees is not None:
                raise Forbidden("The daemon's own log is for keys that see all models; name a model in `model`.")
            return self._own
        seen = self._sees is None or self._sees(model)
        if seen and model not in self._registry and model in self._engines:
            return self._engines.of(model)
        return self._engines.of(self._registry.find(model).id)
