"""The kind `command`: knows what a command holds, finds room for that, and makes its engines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from supervisor.core.history.records import Spent
from supervisor.core.launch.fallback import Fallback
from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Place, Resident, seat
from supervisor.core.schedule.events import Failure
from supervisor.core.takeover.carried import Address
from supervisor.engines.command.manner import CommandManner, Listening
from supervisor.engines.command.measured import Measured, held_before
from supervisor.engines.command.options import PORT, SOCKET, CommandOptions, complaints, placed
from supervisor.engines.engine import Engine
from supervisor.engines.kind import Ground, Kind, Living, Read, Sight, Yard
from supervisor.errors import InvalidRequest, MemoryUnknown
from supervisor.system.sockets import free_port, fresh_socket

_HOST = "127.0.0.1"
_TRIES = 3  # ports
_TAKEN = re.compile(r"address already in use|EADDRINUSE|errno 98\b|errno 48\b|port is already allocated", re.IGNORECASE)
_STEP = "Its port was taken by another program when it started: started once more with another one."


@dataclass(frozen=True)
class CommandRead(Read):
    """A command, with the bytes by device that it is expected to hold; measured: it was seen to hold them."""

    holds: Mapping[str, int] = field(default_factory=dict)
    measured: bool = False


def options_of(entry: ModelEntry) -> CommandOptions:
    """Return the options of a command's entry."""
    assert isinstance(entry.own, CommandOptions)  # what the configuration gives
    return entry.own


@dataclass(frozen=True)
class CommandPlanning:
    """Plans for commands: what they hold is said, or was measured."""

    ground: Ground

    async def know(self, entry: ModelEntry, living: Living) -> CommandRead:
        """Look up what it holds. Raise MemoryUnknown where nobody knows."""
        options = options_of(entry)
        before = {}
        if not options.is_container:
            identity = options.identity(entry.options.env)
            before = await asyncio.to_thread(held_before, self.ground.memory, identity)
        holds = {**options.said_bytes, **before}
        if not holds:
            raise MemoryUnknown(
                f"Nobody knows yet what the engine of '{entry.id}' will hold. Say it in the configuration, with "
                "`memory` by device: `CPU: 2g`, or `CUDA0: 8g`. Once it has run, what it held is remembered.",
                param="memory",
            )
        return CommandRead(entry, holds, bool(before))

    async def glance(self, entry: ModelEntry, living: Living) -> CommandRead:
        """Return the same; nothing has to be downloaded. Raises as `know`."""
        return await self.know(entry, living)

    def plan(self, read: Read, sight: Sight, residents: Sequence[Resident]) -> tuple[Place | DoesNotFit, bool]:
        """Return the seat for what it holds."""
        assert isinstance(read, CommandRead)  # what `know` gives
        found = seat(read.entry.id, read.holds, sight.budgets, residents, learned=read.measured)
        return found, False

    def again(self, fallback: Fallback, failure: Failure, entry: ModelEntry, place: Place) -> Fallback | None:
        """Have it started with another port, where its own was taken meanwhile."""
        used = len(fallback.steps)
        by_port = PORT in "\n".join(options_of(entry).command)
        if used >= _TRIES - 1 or not by_port or not any(map(_TAKEN.search, failure.log_lines)):
            return None
        return replace(fallback, steps=(*fallback.steps, _STEP))

    def check(self, entry: ModelEntry, given: Sequence[str] = ()) -> None:
        """Raise InvalidRequest for arguments that a client gives: only the configuration makes commands."""
        if given:
            message = f"'{entry.id}' is started by a command of the configuration alone."
            raise InvalidRequest(message, param="extra_args")

    def told(self, read: Read, sight: Sight, place: Place, answered: Sequence[Spent]) -> Mapping[str, object]:
        """Return its arguments; what it is asked to be fast is not known."""
        return {"arguments": list(options_of(read.entry).command[1:]), "env": {}, "speed": None}


@dataclass(frozen=True)
class CommandLaunching:
    """Engines of commands."""

    yard: Yard

    async def prepare(self, read: Read, sight: Sight, place: Place, at: Address | None = None) -> Engine:
        """Return the engine, not started. Raises EngineStartFailed where it could not listen anywhere."""
        entry, yard = read.entry, self.yard
        options = options_of(entry)
        log = yard.log(entry.id)
        env = yard.env, entry.options.env
        measured = None
        if not options.is_container:
            identity = options.identity(entry.options.env)
            before = await asyncio.to_thread(held_before, yard.memory, identity)
            measured = Measured(yard.memory, identity, before, yard.process_bytes, yard.clock)
        listening = _at(at) if at is not None else await asyncio.to_thread(self._listening, options)
        manner = CommandManner(options, listening, env, log, measured)
        return Engine(manner, log=log, record_dir=yard.records, limits=yard.limits())

    def _listening(self, options: CommandOptions) -> Listening:
        if SOCKET in "\n".join(options.command):
            return _at(str(fresh_socket(self.yard.runtime)))
        return _at((_HOST, free_port(_HOST)))


def _at(address: Address) -> Listening:
    return Listening(address, {SOCKET: address} if isinstance(address, str) else {PORT: str(address[1])})


COMMAND: Final = Kind(
    name="command",
    summary="Any server that speaks OpenAI's API, started by a command of the configuration.",
    options=CommandOptions,
    shared=frozenset({"env"}),
    lacks=frozenset({"file", "tool_calls", "reasoning_only"}),
    source="command",
    placed=lambda options, absolute: {"command": placed(options.command, absolute)},
    complaints=lambda options: tuple(complaints(options)),
    service=lambda entry: options_of(entry).service,
    planning=CommandPlanning,
    launching=CommandLaunching,
)
