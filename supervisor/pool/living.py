"""The engines there are, as planners see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from supervisor.core.devices import Holding
from supervisor.core.plan import Resident


class Living(Protocol):
    """The engines that there are now; a pool is one."""

    def residents(self) -> Sequence[Resident]:
        """Return the engines' planned memory, and which of them may leave."""

    def holdings(self) -> Sequence[Holding]:
        """Return the memory of the engines that have a process."""


@dataclass(frozen=True)
class Beside:
    """A fixed set of engines without a process; none, where nobody starts any."""

    engines: tuple[Resident, ...] = ()

    def residents(self) -> tuple[Resident, ...]:
        """Return these engines."""
        return self.engines

    def holdings(self) -> tuple[Holding, ...]:
        """Return nothing, as none has a process."""
        return ()


NOBODY = Beside()
"""A machine on which no engine of ours lives."""
