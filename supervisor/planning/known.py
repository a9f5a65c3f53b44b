"""The facts of a model that was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.core.launch.fallback import Fallback
from supervisor.core.learn.history import Observation
from supervisor.core.models.registry import ModelEntry
from supervisor.models.info import ModelInfo


@dataclass(frozen=True)
class Known:
    """A model that was read, with what earlier starts of it showed and the digest of the engine that will run it.

    The options of `entry` are those of the `fallback` that failed starts have led to.
    """

    entry: ModelEntry
    info: ModelInfo
    observations: tuple[Observation, ...] = ()
    engine: str = ""
    build: int | None = None
    fallback: Fallback = field(default_factory=Fallback)
