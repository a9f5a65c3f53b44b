"""The settings in force."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.config.settings import Settings


@dataclass
class Current:
    """Whoever needs a setting asks here, whenever it counts; a reload puts others in their place, all at once."""

    settings: Settings
