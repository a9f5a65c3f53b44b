"""The configuration in force as it is shown: every value, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from supervisor.config.shown import Shown, shown, shown_value
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.service.reload import Reloader


@dataclass(frozen=True)
class ConfigShown:
    """The values in force. `path`: of the file, if there is one. `model`: whose they are; None: all there is."""

    path: str | None
    model: str | None
    values: Sequence[Shown]


@dataclass(frozen=True)
class Configuration:
    """Says what counts. `env`: the daemon's environment, from which a key may come."""

    reloader: Reloader
    registry: Registry
    env: Mapping[str, str]

    def of(self, model: str | None) -> dict[str, Any]:
        """Return `ConfigShown` as JSON; of a model without its defaults. Raises ModelNotFound."""
        entry = None if model is None else self.registry.find(model)
        rows = shown(self.reloader.loaded, self.env) if entry is None else self._of_model(entry)
        path = self.reloader.loaded.path
        found = ConfigShown(None if path is None else str(path), entry.id if entry else None, tuple(rows))
        told: dict[str, Any] = _JSON.dump_python(found, mode="json")
        return told

    def _of_model(self, entry: ModelEntry) -> Iterator[Shown]:
        """Yield what is set for a model: by the file or its defaults, unless a load says otherwise."""
        start = f"models.{entry.id}." if entry.id in self.reloader.loaded.settings.models else "defaults."
        given = entry.given
        for row in shown(self.reloader.loaded, self.env):
            key = row.key.removeprefix(start)
            if key != row.key and key not in given:
                yield replace(row, key=key)
        for key, value in given.items():
            yield Shown(key, shown_value(key, value), "load")


_JSON = TypeAdapter(ConfigShown)
