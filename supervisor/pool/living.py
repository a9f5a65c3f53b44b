"""The engines that there are, as those see them who plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from supervisor.core.devices import Holding
from supervisor.core.plan import Resident


class Living(Protocol):
    """The engines that there are now; a pool is one."""

    def residents(self) -> Sequence[Resident]:
        """What they take by their plans, and who of them may leave."""

    def holdings(self) -> Sequence[Holding]:
        """What those hold that have a process."""


@dataclass(frozen=True)
class Beside:
    """Engines that stay what they are and have no process; none, where nobody starts any."""

    engines: tuple[Resident, ...] = ()

    def residents(self) -> tuple[Resident, ...]:
        """These."""
        return self.engines

    def holdings(self) -> tuple[Holding, ...]:
        """Nothing."""
        return ()


NOBODY = Beside()
"""A machine on which no engine of ours lives."""
