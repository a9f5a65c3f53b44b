"""Progress of long work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One report: `fraction` is 0..1 within the stage, None where nobody knows; `detail` may be empty."""

    stage: str
    fraction: float | None
    detail: str


Report = Callable[[Progress], None]
