"""The parts of the kind `llama`: plans and engines for models in GGUF, of the hub, of a file, or the built-in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.core.history.records import Spent
from supervisor.core.launch.fallback import Fallback, next_fallback
from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Place, Placement, Resident
from supervisor.core.schedule.events import Failure
from supervisor.core.takeover.carried import Address
from supervisor.engines.engine import Engine
from supervisor.engines.kind import Living, Read
from supervisor.engines.kind import Sight as AnySight
from supervisor.llamacpp.program import Program
from supervisor.planning.known import Known, with_header
from supervisor.planning.lookout import Sight
from supervisor.planning.speeds import Foreteller
from supervisor.service.catalogue import Catalogue
from supervisor.service.launcher import Commands, Launcher


@dataclass(frozen=True)
class GgufPlanning:
    """Plans for models in GGUF (`engines.kind.Planning`)."""

    catalogue: Catalogue
    program: Program
    commands: Commands
    foreteller: Foreteller

    async def know(self, entry: ModelEntry, living: Living) -> Known:
        """Have the model's files here, and read them. Raises as `Catalogue.know`."""
        return await self.catalogue.know(entry, living)

    async def glance(self, entry: ModelEntry, living: Living) -> Known:
        """Return the same on a machine that may have no engine, and without a download."""
        return await self.catalogue.glance(entry, living)

    def plan(self, read: Read, sight: AnySight, residents: Sequence[Resident]) -> tuple[Place | DoesNotFit, bool]:
        """Return the placement by the header, and by what earlier starts teach. Raises as `Sight.decide`."""
        known = with_header(read)
        return _ours(sight).decide_with_guess(known, known.entry.options, residents)

    def again(self, fallback: Fallback, failure: Failure, entry: ModelEntry, place: Place) -> Fallback | None:
        """Return what is to be tried next; see `next_fallback`."""
        return next_fallback(fallback, failure, entry.options, _placement(place))

    def check(self, entry: ModelEntry, given: Sequence[str] = ()) -> None:
        """Check the options against the llama-server in use. Raises as `Program.check`."""
        self.program.check(entry.options, given)

    def told(self, read: Read, sight: AnySight, place: Place, answered: Sequence[Spent]) -> Mapping[str, object]:
        """Return llama-server's arguments and environment, and the speed to expect."""
        known, seen, placement = with_header(read), _ours(sight), _placement(place)
        placed = seen.placed(placement)
        speed = self.foreteller.speed(
            known.info.spec, placement, seen.machine, known.engine, known.entry.options.threads, answered
        )
        return {
            "arguments": list(self.commands.arguments(known, placed)),
            "env": dict(placed.visible_env),
            "speed": speed.to_json() if speed else None,
        }


@dataclass(frozen=True)
class GgufLaunching:
    """Engines for models in GGUF (`engines.kind.Launching`)."""

    launcher: Launcher

    async def prepare(self, read: Read, sight: AnySight, place: Place, at: Address | None = None) -> Engine:
        """Return the engine, not started. Raises as `Launcher.prepare`."""
        seen, placement = _ours(sight), _placement(place)
        socket = at if isinstance(at, str) else None
        return await self.launcher.prepare(
            with_header(read), seen.placed(placement), seen.devices_of(placement), socket
        )


def _ours(sight: AnySight) -> Sight:
    assert isinstance(sight, Sight)  # the program looks through one lookout
    return sight


def _placement(place: Place) -> Placement:
    assert isinstance(place, Placement)  # what `plan` gives
    return place
