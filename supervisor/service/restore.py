"""Which models are loaded, remembered so that the next daemon can load them again."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

import structlog

from supervisor.config.settings import ModelOptions
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.errors import ModelNotFound, SupervisorError
from supervisor.models.targets import new_entry, resolve_target, with_options
from supervisor.planning.learning import Learning
from supervisor.store import LoadedModel, LoadedModels

_log = structlog.get_logger()


class Remembered:
    """Keeps the list as engines come and go. A model whose engine crashed stays on it: it was not unloaded.

    Args:
        learning: writes to the database, beside the caller.
        registry: the models there are.
        clock: seconds since 1970.
    """

    def __init__(self, learning: Learning, registry: Registry, clock: Callable[[], float] = time.time) -> None:
        self._learning = learning
        self._registry = registry
        self._clock = clock
        self._closed = False

    def ready(self, model: str) -> None:
        """An engine of the model is ready."""
        try:
            entry = self._registry.find(model)
        except ModelNotFound:
            return
        loaded = LoadedModel(entry.id, entry.path, _given(entry), self._clock(), hub=entry.hub, aliases=entry.aliases)
        self._learning.later("loaded", lambda database: LoadedModels(database).add(loaded))

    def gone(self, model: str) -> None:
        """The model's last engine ended as it was told to."""
        if not self._closed:
            self._learning.later("unloaded", lambda database: LoadedModels(database).remove(model))

    def close(self) -> None:
        """The daemon is stopping: what is loaded now is what counts."""
        self._closed = True

    def begin(self, *, restore: bool) -> list[str]:
        """A new daemon starts: the models to load again, in the order in which they were.

        They have the options again that they were given when they were loaded, beside those that are configured now.
        Those that were loaded by path or from the hub are known from now on; those that are no more are forgotten.
        """
        if not restore:
            self._learning.later("unloaded", lambda database: LoadedModels(database).clear())
            return []
        try:
            before = self._learning.loaded()
        except sqlite3.Error as error:
            _log.warning("store_unreadable", reason=str(error))
            return []
        found = []
        for loaded in before:
            try:
                found.append(self._entry(loaded).id)
                if found[-1] != loaded.id:  # another name means it now
                    self.gone(loaded.id)
            except (SupervisorError, ValueError) as error:
                _log.warning("not_restored", model=loaded.id, reason=str(error))
                self.gone(loaded.id)
        return found

    def _entry(self, loaded: LoadedModel) -> ModelEntry:
        """Raises SupervisorError, ValueError for one that is no more."""
        entry = with_options(self._known(loaded), ModelOptions.model_validate(loaded.options))
        self._registry.add(entry)
        return entry

    def _known(self, loaded: LoadedModel) -> ModelEntry:
        try:
            return self._registry.find(loaded.id)
        except ModelNotFound:
            if loaded.path is None and loaded.hub is None:
                raise
        if loaded.hub is None:
            return resolve_target(self._registry, loaded.path or "", loaded.id)
        known = self._registry.by_hub(loaded.hub)
        return known or new_entry(self._registry, loaded.id, loaded.hub, loaded.aliases)


def _given(entry: ModelEntry) -> dict[str, object]:
    """Return what a load request would have to say to give these options."""
    return {name: value for name, value in entry.given.items() if name in ModelOptions.model_fields}
