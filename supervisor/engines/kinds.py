"""The kinds of engines, one row each. A further kind is a folder beside these, and a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Generic, TypeVar

from supervisor.core.models.registry import NATIVE, ModelEntry
from supervisor.core.options import LaunchOptions
from supervisor.engines.command.kind import COMMAND
from supervisor.engines.kind import Ground, Kind, Launching, Planning, Yard
from supervisor.engines.llama.kind import LLAMA
from supervisor.engines.mlx.kind import MLX as MLX_KIND
from supervisor.engines.service import Service
from supervisor.errors import NotSupportedByEngine

Part = TypeVar("Part")

KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for kind in (LLAMA, COMMAND, MLX_KIND)}
"""Every kind, by its name."""


MLX: Final = MLX_KIND.name
"""The kind of models in safetensors."""

NATIVE_KIND: Final = KINDS[NATIVE]
"""The kind of models for which nothing else is said."""


class Parts(Generic[Part]):
    """One part of every kind; asked for with a model's entry."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts

    def of(self, entry: ModelEntry) -> Part:
        """Return the part of the model's kind."""
        return self._parts[entry.kind]


def plannings(ground: Ground, kinds: Mapping[str, Kind] = KINDS) -> Parts[Planning]:
    """Return what plans models, by their kinds."""
    return Parts({name: kind.planning(ground) for name, kind in kinds.items()})


def launchings(yard: Yard, kinds: Mapping[str, Kind] = KINDS) -> Parts[Launching]:
    """Return what makes engines, by the kinds of the models."""
    return Parts({name: kind.launching(yard) for name, kind in kinds.items()})


def for_format(entry: ModelEntry, name: str, kinds: Mapping[str, Kind] = KINDS) -> ModelEntry:
    """Return the entry of a model that only this kind of engine loads, with the options that it knows.

    Raises NotSupportedByEngine without that kind.
    """
    if name not in kinds:
        raise NotSupportedByEngine(
            f"'{entry.id}' is a model for {name.upper()}, which no engine here loads. Take one in GGUF; "
            "`supervisor estimate` says what it would hold.",
            param="target",
        )
    shared = {name: getattr(entry.options, name) for name in kinds[name].shared}
    return replace(entry, kind=name, options=LaunchOptions(**shared))


def service_of(entry: ModelEntry) -> Service:
    """Return how the model's engine is asked."""
    return KINDS[entry.kind].service(entry)
