"""Which models there are, by id and alias. Pure: paths are text."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from supervisor.core.launch import LaunchOptions
from supervisor.core.toolmode import ToolMode
from supervisor.errors import InvalidRequest, ModelIdTaken, ModelNotFound


class Source(enum.Enum):
    """Where a model comes from."""

    DEMO = "demo"  # the built-in one, made on first use
    FILE = "file"


@dataclass(frozen=True)
class ModelEntry:
    """One model that can be asked for.

    `path` is the GGUF (the first shard of a split one); None for the built-in model. `tool_calls`: how calls are looked
    for in its answers; None: as the server does.
    """

    id: str
    source: Source
    path: str | None
    options: LaunchOptions = field(default_factory=LaunchOptions)
    aliases: tuple[str, ...] = ()
    tool_calls: ToolMode | None = None


class Registry:
    """The models in the order in which they were added."""

    def __init__(self, entries: tuple[ModelEntry, ...] = ()) -> None:
        self._entries: dict[str, ModelEntry] = {}
        self._names: dict[str, str] = {}  # id or alias → id
        for entry in entries:
            self.add(entry)

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(self._entries.values())

    def add(self, entry: ModelEntry) -> bool:
        """Add a model, or replace the options of the one with the same id and path; whether it has other options now.

        Raises ModelIdTaken where a name of it already belongs to another model, InvalidRequest where one is no name.
        """
        for name in (entry.id, *entry.aliases):
            if not name.strip() or not name.isprintable():
                raise InvalidRequest(f"{name!r} cannot name a model; use printable characters.", param="id")
            owner = self._names.get(name)
            if owner is not None and (owner != entry.id or self._entries[owner].path != entry.path):
                raise ModelIdTaken(
                    f"'{name}' already names the model {self._entries[owner].path or owner}; choose another with --id.",
                    param="id",
                )
        before = self._entries.get(entry.id)
        self._entries[entry.id] = entry
        self._names.update(dict.fromkeys((entry.id, *entry.aliases), entry.id))
        return before is not None and before.options != entry.options

    def find(self, name: str) -> ModelEntry:
        """The model with this id or alias; raises ModelNotFound, naming what there is."""
        model_id = self._names.get(name)
        if model_id is None:
            known = ", ".join(self._entries) or "none"
            raise ModelNotFound(
                f"There is no model '{name}'. Known models: {known}. Add one with `supervisor load PATH`.",
                param="model",
            )
        return self._entries[model_id]

    def by_path(self, path: str) -> ModelEntry | None:
        """The model that was made from this file."""
        return next((entry for entry in self._entries.values() if entry.path == path), None)
