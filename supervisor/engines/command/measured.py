"""What a command was seen to hold: measured while it runs, kept, and taken for the next plan.

A process may take more as it works, so the largest figure of each device counts, and those of a command that was
changed do not count any more. What runs in a container is none of our processes, and is never measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.core.devices import HOST
from supervisor.core.engine_output.footprint import DeviceFootprint, Footprint
from supervisor.core.learn.history import Observation
from supervisor.core.learn.identity import Start
from supervisor.engines.kind import Memory
from supervisor.store import Database, Footprints
from supervisor.system import processes

_GROWN = 16 << 20  # bytes; a smaller change is not written down


def held_before(memory: Memory, identity: str) -> dict[str, int]:
    """Return the bytes by device that a command was seen to hold; empty: it never was. Blocks briefly."""
    found = memory.observations(identity)
    return found[0].footprint.used_bytes if found else {}


class Measured:
    """The largest figures of one engine, and of those before it.

    Args:
        memory: where they are kept.
        identity: of the command.
        before: what is known already.
        process_bytes: what drivers say that a process holds, by device; it blocks.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        memory: Memory,
        identity: str,
        before: Mapping[str, int],
        process_bytes: Callable[[int], Mapping[str, int]],
        clock: Callable[[], float],
    ) -> None:
        self._memory = memory
        self._identity = identity
        self._most = dict(before)
        self._process_bytes = process_bytes
        self._clock = clock

    def look(self, pid: int) -> Mapping[str, int]:
        """Measure the session of a process; return the largest figures so far. Blocks."""
        now = {HOST: processes.session_resident_bytes(pid) or 0}
        for member in processes.session_members(pid):
            for name, size in self._process_bytes(member).items():
                now[name] = now.get(name, 0) + size
        before = self._most
        self._most = {name: max(before.get(name, 0), now.get(name, 0)) for name in {**before, **now}}
        if any(size > before.get(name, -_GROWN) + _GROWN for name, size in self._most.items()):
            self._keep()
        return self._most

    def footprint(self) -> Footprint:
        """Return the largest figures as an account, of which the parts are not known."""
        return Footprint(tuple(DeviceFootprint(name, weights_bytes=size) for name, size in sorted(self._most.items())))

    def _keep(self) -> None:
        seen = Observation(Start(self._identity, "", {}, "", ""), self.footprint(), {}, {}, self._clock())

        def write(database: Database) -> None:
            Footprints(database).record(seen)

        self._memory.later("what a command holds", write)
