"""The facts of a model that was read."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.learn.history import Observation
from supervisor.engines.kind import Read
from supervisor.errors import NotSupportedByEngine
from supervisor.models.info import ModelInfo


@dataclass(frozen=True)
class Known(Read):
    """A model in GGUF that was read, with what earlier starts of it showed and the digest of the engine for it.

    The options of `entry` are those of the `fallback` that failed starts have led to.
    """

    info: ModelInfo
    observations: tuple[Observation, ...] = ()
    engine: str = ""
    build: int | None = None


def with_header(read: Read) -> Known:
    """Return what was read of a model that has a header. Raise NotSupportedByEngine for one that has none."""
    if isinstance(read, Known):
        return read
    raise NotSupportedByEngine(
        f"'{read.entry.id}' is no GGUF file, so there is no header to estimate from. `supervisor plan` says what it "
        "is expected to hold.",
        param="target",
    )
