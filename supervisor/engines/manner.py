"""What one kind of engine does in its own way while it runs. The tender (`engines/engine`) does the rest.

A manner is made for one engine. It knows the command, hears what the process writes, and can say when the engine is
ready, whether it answers, and how it is asked to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from supervisor.core.engine_output.failures import Cause
from supervisor.core.engine_output.footprint import Footprint
from supervisor.core.engine_output.statelines import LoadProgress
from supervisor.engines.client import EngineClient
from supervisor.engines.failed import Stalled
from supervisor.errors import EngineStartFailed
from supervisor.system.child import ExitStatus

__all__ = ["Command", "Heard", "LoadProgress", "Manner", "ReadyInfo"]


@dataclass(frozen=True)
class Command:
    """The command of an engine: the arguments, the whole environment, and the Unix socket, empty where it has none."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    socket: str = ""


@dataclass(frozen=True)
class ReadyInfo:
    """The facts that a ready engine reports: tokens of context per request, slots, and its own words (may be empty).

    `footprint` is what it holds, where that is known.
    """

    n_ctx: int | None
    n_slots: int | None
    info: Mapping[str, object]
    footprint: Footprint | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What a line of output says of the start: the facts of an engine that is ready, or how far a load is.

    echo: it tells of a question of ours, so it is no sign of life.
    """

    ready: Mapping[str, object] | None = None
    progress: LoadProgress | None = None
    echo: bool = False


class Manner(Protocol):
    """What is particular to one engine, by its kind."""

    @property
    def command(self) -> Command:
        """Command that is to be run."""

    @property
    def client(self) -> EngineClient:
        """HTTP to it."""

    @property
    def broken(self) -> asyncio.Future[Cause]:
        """Future that is done when its device has failed and it can work no more."""

    def note_broken(self, message: str) -> None:
        """Take the error of a failed device from one of its answers."""

    def hear(self, line: bytes, *, out: bool) -> Heard | None:
        """Take a line that it has written, and put into its log what belongs there; return what it says of the start.

        `out`: on the standard output, not on the standard error.
        """

    async def found_ready(self) -> Mapping[str, object]:
        """Return its facts once it is seen to be ready; never, where its output alone tells it."""

    async def describe(self, info: Mapping[str, object]) -> ReadyInfo:
        """Return what is to be known of an engine that is ready, from its own words and from what it answers."""

    async def settle(self, pid: int, seconds: float, info: ReadyInfo) -> ReadyInfo:
        """Do what is to be done once it is ready, after so many seconds, before its first request."""

    def adopted(self, pid: int, argv: tuple[str, ...], info: Mapping[str, object]) -> None:
        """Note that it runs and is ready: an earlier image of this process has started it, with that command.

        info: what it said of itself when it was ready.
        """

    async def answers(self, within: float) -> bool:
        """Return whether it answers anything within that many seconds."""

    def memory(self, pid: int) -> int | None:
        """Return the bytes of the host's memory that it holds, without mapped files; None where that is unknown."""

    async def park(self) -> None:
        """Save what is to be kept of it, before it is stopped while idle. Takes a bounded time, and never fails."""

    def ask_to_end(self, *, ready: bool) -> bytes | None:
        """Return the line on its standard input that asks it to end; None: it is to get SIGTERM."""

    async def end(self, pid: int) -> None:
        """Do what else ends it, before its process is ended. Takes a bounded time, and never fails."""

    def failed(self, outcome: Stalled | ExitStatus, said: tuple[str, ...]) -> EngineStartFailed:
        """Return the error of a start that ended so, after these lines of output."""
