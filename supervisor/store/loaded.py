"""Remember which models are loaded, for the next daemon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.store.database import Database


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that has an engine.

    Attributes:
        path: its file; None for the built-in one.
        options: those that it was given when it was loaded, in place of what is configured, by name.
        at: since when, in seconds since 1970.
        hub: the reference of one of the hub, which leads to its files wherever they are.
        aliases: its further names.
    """

    id: str
    path: str | None
    options: Mapping[str, object]
    at: float
    hub: str | None = None
    aliases: tuple[str, ...] = ()


class LoadedModels:
    """The table of loaded models. Its methods raise sqlite3.Error where the database does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, model: LoadedModel) -> None:
        """Keep a model, in place of what was known of that id."""
        row = model.id, model.path, json.dumps(model.options), model.at, model.hub, json.dumps(model.aliases)
        with self._database.change() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO loaded (id, path, options, at, hub, aliases) VALUES (?,?,?,?,?,?)", row
            )

    def remove(self, model: str) -> None:
        """Remove a model that is no longer loaded."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM loaded WHERE id = ?", (model,))

    def clear(self) -> None:
        """Remove all models."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM loaded")

    def all(self) -> tuple[LoadedModel, ...]:
        """Return the models in the order in which they were loaded.

        A row that cannot be understood counts as absent.
        """
        rows = self._database.rows("SELECT id, path, options, at, hub, aliases FROM loaded ORDER BY at, id")
        found = (_loaded(row) for row in rows)
        return tuple(one for one in found if one is not None)


def _loaded(row: tuple[Any, ...]) -> LoadedModel | None:
    name, path, options, at, hub, aliases = row  # SQLite takes any type in any column
    texts = isinstance(name, str) and isinstance(path, str | None) and isinstance(hub, str | None)
    if not texts or not isinstance(at, int | float):
        return None
    try:
        return LoadedModel(name, path, dict(json.loads(options)), at, hub, tuple(map(str, json.loads(aliases))))
    except (ValueError, TypeError, RecursionError):
        return None
