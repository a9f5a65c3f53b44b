"""The engines there are, as planners see them."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.devices import Holding
from supervisor.core.plan import Resident
from supervisor.engines.kind import Living

__all__ = ["NOBODY", "Beside", "Living"]


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
