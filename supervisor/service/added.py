"""Models that loads added to those of the configuration: how many there may be, and how they go again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from supervisor.core.models.registry import Registry
from supervisor.core.schedule import Pins
from supervisor.errors import InvalidRequest, ModelInUse
from supervisor.planning.planner import Planner
from supervisor.pool.pool import Pool
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.service.enginelogs import EngineLogs
from supervisor.service.remarks import Remarks
from supervisor.service.status import ModelStatus
from supervisor.service.statuses import Statuses
from supervisor.service.trials import Newcomers
from supervisor.service.variants import Variants

MOST_ADDED = 256
"""Models that loads may add to those of the configuration."""


@dataclass(frozen=True)
class Forgetting:
    """Whoever keeps something for a model lets go of it together with the model itself."""

    registry: Registry
    planner: Planner
    pool: Pool
    pins: Pins
    remarks: Remarks
    logs: EngineLogs
    variants: Variants
    tool_calls: ToolCalls

    def __call__(self, model: str, why: str) -> None:
        """Drop a model; `why`, a sentence, is told for a while to whoever asks for it."""
        untold = self.registry.forget(model, why)
        if untold is not None:
            self.logs.forget(untold)
            self.variants.forget(untold)
            self.pool.forget(untold)
            self.tool_calls.forget(untold)
        self.remarks.forget(model)
        self.pins.forget(model)
        self.planner.forget(model)
        self.pool.changed()


class Added:
    """The models that are not configured.

    Args:
        configures: whether the configuration has a model, or it is built in.
        forget: drops a model, given its id and why.
    """

    def __init__(
        self,
        registry: Registry,
        pool: Pool,
        statuses: Statuses,
        configures: Callable[[str], bool],
        forget: Callable[[str, str], None],
    ) -> None:
        self._registry = registry
        self._pool = pool
        self._statuses = statuses
        self._configures = configures
        self._forget = forget
        self._newcomers = Newcomers(pool, self._failed)

    def begin(self, model: str) -> None:
        """The model was just told to load for the first time; where that fails, it is forgotten."""
        self._newcomers.begin(model)

    def forget(self, name: str) -> ModelStatus:
        """Drop a model that a load added; its status as it was. Its files stay.

        Raises ModelNotFound, InvalidRequest for one of the configuration, ModelInUse for one that has an engine.
        """
        entry = self._registry.find(name)
        if self._configures(entry.id):
            raise InvalidRequest(
                f"'{entry.id}' is configured or built in; take it out of the configuration, or of models_dir.",
                param="model",
            )
        if self._pool.status(entry.id).engines:
            raise ModelInUse(f"{entry.id} is loaded; unload it first.", param="model")
        was = self._statuses.of(entry.id)
        self._forget(entry.id, f"it was forgotten by `forget {entry.id}`.")
        return was

    def make_place(self) -> None:
        """Forget the oldest models that loads added and that nobody uses, where there are too many for one more.

        Every list tells of all models. Raises InvalidRequest where all are in use.
        """
        added = [entry.id for entry in self._registry if not self._configures(entry.id)]
        surplus = len(added) + 1 - MOST_ADDED
        if surplus <= 0:
            return
        unused = [model for model in added if self._is_unused(model)]
        if len(unused) < surplus:
            raise InvalidRequest(
                f"Loads have added {len(added)} models, all in use; `unload` or `forget` some, or configure them."
            )
        for model in unused[:surplus]:
            self._forget(model, f"loads have added {MOST_ADDED} models after it.")

    def _is_unused(self, model: str) -> bool:
        status = self._pool.status(model)
        return not (status.engines or status.view.waiting or self._newcomers.is_loading(model))

    def _failed(self, model: str, reason: str) -> None:
        if model in self._registry and not self._configures(model):
            self._forget(model, f"it could not be loaded, and was forgotten ({reason.rstrip('.')}).")
