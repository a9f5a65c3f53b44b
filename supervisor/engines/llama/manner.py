"""The manner of llama-server: ready by a state line, asked to end on its standard input, its account of buffers read.

Builds that say nothing of their state are asked on /health.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from supervisor.core.engine_output.chatter import is_chatter, unquoted
from supervisor.core.engine_output.failures import Cause
from supervisor.core.engine_output.footprint import AccountReader, Footprint, is_asking
from supervisor.core.engine_output.statelines import ASK_EXIT, context_of, load_progress, parse_state, slot_facts
from supervisor.core.launch import LaunchSpec, child_environment
from supervisor.engines.client import EngineClient, EngineUnreachable
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.failed import Stalled, failed_start
from supervisor.engines.llama.broken import BreakWatch
from supervisor.engines.log import OutputLog
from supervisor.engines.manner import Command, Heard, ReadyInfo
from supervisor.errors import EngineStartFailed
from supervisor.system import processes
from supervisor.system.child import ExitStatus

_SILENT_S = 0.5  # without a state line for so long, the build is taken not to speak the protocol
_POLL_S = 0.1
_HTTP_S = 5.0
_TOLD_S = 0.5  # the log comes through a thread of the engine's and may lag behind its being ready


class StartNotes(Protocol):
    """A receiver of the facts of a start."""

    def ready(self, pid: int, seconds: float, n_ctx: int | None, account: Footprint | None) -> Footprint | None:
        """Take process, seconds until ready, context per slot and the engine's account; return its footprint.

        Must not block.
        """

    def failed(self, code: str) -> None:
        """Take the code of the failure with which the start ended instead. Must not block."""


class Keeper(Protocol):
    """A keeper of what slots hold. Neither call fails, or takes long without end."""

    async def restore(self, client: EngineClient, slots: int) -> None:
        """Restore the slots of an engine that has just become ready."""

    async def save(self, client: EngineClient) -> None:
        """Save the slots of an engine that is idle and about to end."""


@dataclass(frozen=True)
class Attendants:
    """Those who attend to an engine. None: nobody does.

    Attributes:
        notes: gets the facts of its start.
        keeper: saves and restores what its slots hold.
    """

    notes: StartNotes | None = None
    keeper: Keeper | None = None


def llama_engine(
    launch: LaunchSpec,
    *,
    log: OutputLog,
    record_dir: Path,
    limits: EngineLimits,
    environ: Mapping[str, str] = os.environ,
    attendants: Attendants = Attendants(),
) -> Engine:
    """Return a llama-server behind a Unix socket, not started.

    Args:
        launch: what to run; its socket must not exist yet.
        log: gets every line of output.
        record_dir: where the child's record lives.
        limits: patience.
        environ: the environment to start from; `launch.env` is added.
        attendants: who is told when it is ready, and when it is about to end.
    """
    manner = LlamaManner(launch, log, environ, attendants)
    return Engine(manner, log=log, record_dir=record_dir, limits=limits)


class LlamaManner:
    """What is particular to one llama-server. The arguments are those of `llama_engine`."""

    def __init__(self, launch: LaunchSpec, log: OutputLog, environ: Mapping[str, str], attendants: Attendants) -> None:
        self.command = Command(launch.argv, child_environment(environ, launch), launch.socket)
        self.client = EngineClient(launch.socket)
        self._names = launch.names
        self._log = log
        self._notes, self._keeper = attendants.notes, attendants.keeper
        self._account = AccountReader()
        self._told = asyncio.Event()  # the account is complete
        self._hushed = is_asking(launch.argv)
        self._breaks = BreakWatch(log.tail, launch.names)
        self._speaks = False

    @property
    def broken(self) -> asyncio.Future[Cause]:
        """Future that is done when it is known that its device has failed."""
        return self._breaks.found

    def note_broken(self, message: str) -> None:
        """Take the error of a failed device from an answer. `broken` follows as soon as the log tells why."""
        self._breaks.note_answer(message)

    def hear(self, line: bytes, *, out: bool) -> Heard | None:
        """Take a line: a state line, or one for the log."""
        found = parse_state(line) if out else None
        if found is None:
            self._on_line(unquoted(line))
            return None
        self._speaks = True
        if found.state == "ready":
            return Heard(ready=found.payload)
        return Heard(progress=load_progress(found.payload)) if found.state == "loading" else None

    async def found_ready(self) -> Mapping[str, object]:
        """Ask /health until the engine is ready, where the build does not say it."""
        await asyncio.sleep(_SILENT_S)
        while not self._speaks:
            if await self._get("/health") is not None:
                return {}
            await asyncio.sleep(_POLL_S)
        never: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        return await never

    async def describe(self, info: Mapping[str, object]) -> ReadyInfo:
        """Ask for what the ready line lacks, and thereby wait for the engine's loop.

        Only /slots is answered by that loop, which starts just after the ready line and forgets an exit line that came
        before; /props is for engines without /slots.
        """
        facts = slot_facts(await self._get("/slots")) or slot_facts(await self._get("/props"))
        n_ctx, n_slots = facts or (context_of(info), None)
        return ReadyInfo(n_ctx, n_slots, info)

    async def settle(self, pid: int, seconds: float, info: ReadyInfo) -> ReadyInfo:
        """Note the start, and restore what slots held. The facts come with the engine's footprint."""
        if self._hushed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TOLD_S):
                    await self._told.wait()
        self._told.set()
        if self._notes is not None:
            info = replace(info, footprint=self._notes.ready(pid, seconds, info.n_ctx, self._account.footprint()))
        if self._keeper is not None:
            await self._keeper.restore(self.client, info.n_slots or 1)
        return info

    def adopted(self, pid: int, argv: tuple[str, ...], info: Mapping[str, object]) -> None:
        """Note that its account was read; who speaks the protocol has said something of itself."""
        self._told.set()
        self._hushed = is_asking(argv)
        self._speaks = bool(info)

    async def answers(self, within: float) -> bool:
        """Return whether it answers /health within that many seconds."""
        try:
            async with asyncio.timeout(within), self.client.get("/health") as response:
                return response.status > 0
        except (EngineUnreachable, TimeoutError):
            return False

    def memory(self, pid: int) -> int | None:
        """Return the bytes of its own pages; mapped weights are none of them."""
        return processes.session_anonymous_bytes(pid)

    async def park(self) -> None:
        """Save what its slots hold, where that is to be kept."""
        if self._keeper is not None:
            await self._keeper.save(self.client)

    def ask_to_end(self, *, ready: bool) -> bytes | None:
        """Return the line that ends it. Before it is ready it reads no input, and SIGTERM ends it at once."""
        return ASK_EXIT if self._speaks and ready else None

    async def end(self, pid: int) -> None:
        """Do nothing: its process is all there is."""

    def failed(self, outcome: Stalled | ExitStatus, said: tuple[str, ...]) -> EngineStartFailed:
        """Return the error of a start, and note its code."""
        failure = failed_start(outcome, said, self._names)
        if self._notes is not None:
            self._notes.failed(failure.code)
        return failure

    def _on_line(self, line: bytes) -> None:
        if not self._told.is_set():
            self._account.feed(line.decode("utf-8", "replace"))
            if self._account.complete():
                self._told.set()
        elif self._hushed and is_chatter(line):
            return
        self._log.write(line)
        self._breaks.note_line(line)

    async def _get(self, path: str) -> object:
        """Return JSON from the engine; None when it does not answer 200 with JSON in time."""
        try:
            async with asyncio.timeout(_HTTP_S), self.client.get(path) as response:
                return await response.json() if response.status == 200 else None
        except (EngineUnreachable, TimeoutError, ValueError, RecursionError):
            return None
