"""Bring up one llama-server, watch it and take it down. An engine object is started once and never again.

Ready is what the engine says (a state line on stdout); builds that say nothing are asked on /health. There is no
limit on how long a start may take, only on how long it may show no sign of life: no output, no I/O, no CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from supervisor.core.engine_output.chatter import is_chatter, unquoted
from supervisor.core.engine_output.failures import Cause
from supervisor.core.engine_output.footprint import AccountReader, Footprint, is_asking
from supervisor.core.engine_output.statelines import (
    ASK_EXIT,
    LoadProgress,
    context_of,
    load_progress,
    parse_state,
    slot_facts,
)
from supervisor.core.launch import LaunchSpec, child_environment
from supervisor.engines.broken import BreakWatch
from supervisor.engines.client import EngineClient, EngineUnreachable
from supervisor.engines.failed import Stalled, failed_start
from supervisor.engines.log import OutputLog
from supervisor.errors import EngineStartFailed
from supervisor.system import processes
from supervisor.system.child import Child, ExitStatus, StopGrace

__all__ = ["Attendants", "Engine", "EngineLimits", "LoadProgress", "ReadyInfo"]

_SILENT_S = 0.5  # without a state line for so long, the build is taken not to speak the protocol
_POLL_S = 0.1
_HTTP_S = 5.0
_BUSY = 0.05  # of one core: less CPU than this is a process that waits, not one that works
_TOLD_S = 0.5  # the log comes through a thread of the engine's and may lag behind its being ready
_LAST_LINES = 400  # of this start's output, where the reason of a failure is looked for


@dataclass(frozen=True)
class EngineLimits:
    """Limits in seconds: `stall_s` without a sign of life end a start; `grace` is how long a stop may take."""

    stall_s: float = 120.0
    grace: StopGrace = field(default_factory=StopGrace)


@dataclass(frozen=True)
class ReadyInfo:
    """The facts that a ready engine reports: tokens of context per request, slots, and its own words (may be empty).

    `footprint` is what it holds, where that is known.
    """

    n_ctx: int | None
    n_slots: int | None
    info: Mapping[str, object]
    footprint: Footprint | None = None


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


@dataclass(frozen=True)
class _Ready:
    info: Mapping[str, object]


class Engine:
    """A llama-server process behind a Unix socket.

    Args:
        launch: what to run; its socket must not exist yet.
        log: gets every line of output.
        record_dir: where the child's record lives.
        limits: patience.
        environ: the environment to start from; `launch.env` is added.
        attendants: who is told when it is ready, and when it is about to end.

    Attributes:
        client: HTTP to it.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        *,
        log: OutputLog,
        record_dir: Path,
        limits: EngineLimits,
        environ: Mapping[str, str] = os.environ,
        attendants: Attendants = Attendants(),
    ) -> None:
        loop = asyncio.get_running_loop()
        self.socket = launch.socket
        self.client = EngineClient(launch.socket)
        self._launch = launch
        self._log = log
        self._record_dir = record_dir
        self._limits = limits
        self._environ = environ
        self._notes, self._keeper = attendants.notes, attendants.keeper
        self._account = AccountReader()
        self._told = asyncio.Event()  # the account is complete
        self._hushed = is_asking(launch.argv)
        self._exit: asyncio.Future[ExitStatus] = loop.create_future()
        self._breaks = BreakWatch(log.tail, launch.names)
        self._outcome: asyncio.Future[_Ready | Stalled | ExitStatus] = loop.create_future()
        self._spawning: asyncio.Task[Child] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._on_progress: Callable[[LoadProgress], None] | None = None
        self._speaks = False
        self._first_line = log.written
        self._sign_of_life = loop.time()

    @property
    def pid(self) -> int | None:
        """Process id of the child; None before there is one."""
        return None if self._child is None else self._child.pid

    @property
    def exit(self) -> asyncio.Future[ExitStatus]:
        """Future that is done when the child is gone, for whatever reason; cancelling a waiter cancels nothing else."""
        return asyncio.shield(self._exit)

    @property
    def broken(self) -> asyncio.Future[Cause]:
        """Future that is done when it is known that its device has failed, and why; it can work no more."""
        return self._breaks.found

    def note_broken(self, message: str) -> None:
        """Take the error of a failed device from one of its answers. `broken` follows as soon as its log tells why."""
        self._breaks.note_answer(message)

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the newest lines of output."""
        return self._log.said(lines)

    async def start(self, on_progress: Callable[[LoadProgress], None]) -> ReadyInfo:
        """Bring the engine up; return when it can answer. Cancelling, like any failure, ends the child first.

        Raises:
            EngineStalled: no sign of life for the limit's time.
            EngineStartFailed: it could not be started or exited; `log_lines` tell why.
        """
        if self._spawning is not None or self._stopping is not None:
            raise EngineStartFailed("an engine is started once, and not after it was stopped")
        try:
            return await self._start(on_progress)
        except BaseException:
            await self.stop()
            raise

    async def alive(self, within: float) -> bool:
        """Return whether it answers /health within that many seconds, or at least takes CPU time or does I/O."""
        if self._child is None or await self._answers(within / 2):
            return True
        before = processes.activity(self._child.pid)
        deadline = asyncio.get_running_loop().time() + within / 2
        if await self._answers(within / 2):
            return True
        await asyncio.sleep(deadline - asyncio.get_running_loop().time())
        now = processes.activity(self._child.pid)
        return now.io_bytes > before.io_bytes or now.cpu_s - before.cpu_s > _BUSY * within / 2

    def memory(self) -> int | None:
        """Return the bytes of the host's memory that it holds, without mapped files; None where that is unknown."""
        return None if self._child is None else processes.session_anonymous_bytes(self._child.pid)

    async def park(self) -> None:
        """Save what its slots hold, where that is to be kept, before `stop`.

        It takes a bounded time, and never fails.
        """
        if self._keeper is not None and self._is_ready() and not self._exit.done():
            await self._keeper.save(self.client)

    def kill(self) -> None:
        """End the child without asking, also while `stop` waits for it."""
        if self._child is not None:
            self._child.kill()

    async def stop(self) -> None:
        """End the engine: afterwards the child is reaped, the socket file gone and `client` closed.

        Idempotent and safe to cancel; to be called as well when the engine has ended by itself.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _start(self, on_progress: Callable[[LoadProgress], None]) -> ReadyInfo:
        self._sign_of_life = began = asyncio.get_running_loop().time()
        on_progress(LoadProgress("starting", None))
        self._on_progress = on_progress
        self._spawning = asyncio.create_task(self._spawn())
        try:
            child = await asyncio.shield(self._spawning)
        except OSError as error:
            program, reason = self._launch.argv[0], error.strerror or error
            full = "; free some room on the disk of the state folder" if error.errno == errno.ENOSPC else ""
            raise EngineStartFailed(f"{program} could not be started: {reason}{full}") from error
        watchers = (asyncio.create_task(self._watch_for_stall(child)), asyncio.create_task(self._poll_health()))
        try:
            outcome = await asyncio.shield(self._outcome)
        finally:
            self._on_progress = None
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
        if isinstance(outcome, _Ready):
            seconds = asyncio.get_running_loop().time() - began
            info = await self._describe(outcome.info)
            if not self._exit.done():
                info = await self._noted(info, child.pid, seconds)
                if self._keeper is not None:
                    await self._keeper.restore(self.client, info.n_slots or 1)
            if not self._exit.done():
                return info
            outcome = self._exit.result()
        said = self.tail(min(_LAST_LINES, self._log.written - self._first_line))
        failure = failed_start(outcome, said, self._launch.names)
        if self._notes is not None:
            self._notes.failed(failure.code)
        raise failure

    async def _stop(self) -> None:
        status = ExitStatus(None, None)
        self.client.close()  # with a stream open, llama-server ends neither when asked nor on the first SIGTERM
        if self._spawning is not None:
            with contextlib.suppress(Exception):  # start() reports why it could not be spawned; nothing is left to stop
                child = await self._spawning
                # before it is ready it does not listen to stdin, and SIGTERM ends it at once
                ask = ASK_EXIT if self._listens() else None
                status = await child.stop(ask=ask, grace=self._limits.grace)
        self._ended(status)

    async def _spawn(self) -> Child:
        child = await Child.spawn(
            self._launch.argv,
            env=child_environment(self._environ, self._launch),
            on_stdout=self._on_stdout,
            on_stderr=self._on_line,
            record_dir=self._record_dir,
            socket=self.socket,
        )
        self._child = child
        child.exit.add_done_callback(lambda exit: self._ended(exit.result()))
        return child

    def _ended(self, status: ExitStatus) -> None:
        if not self._exit.done():
            Path(self.socket).unlink(missing_ok=True)
            self._log.rest()
            self._exit.set_result(status)
            self._set_outcome(status)

    def _set_outcome(self, outcome: _Ready | Stalled | ExitStatus) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _on_line(self, line: bytes) -> None:
        line = unquoted(line)
        self._sign_of_life = asyncio.get_running_loop().time()
        if not self._told.is_set():
            self._account.feed(line.decode("utf-8", "replace"))
            if self._account.complete():
                self._told.set()
        elif self._hushed and is_chatter(line):
            return
        self._log.write(line)
        self._breaks.note_line(line)

    def _on_stdout(self, line: bytes) -> None:
        found = parse_state(line)
        if found is None:
            self._on_line(line)
            return
        self._speaks = True
        self._sign_of_life = asyncio.get_running_loop().time()
        if found.state == "ready":
            self._set_outcome(_Ready(found.payload))
        elif found.state == "loading" and self._on_progress is not None:
            self._on_progress(load_progress(found.payload))

    def _listens(self) -> bool:
        return self._speaks and self._is_ready()

    def _is_ready(self) -> bool:
        return self._outcome.done() and isinstance(self._outcome.result(), _Ready)

    async def _watch_for_stall(self, child: Child) -> None:
        """Return once the engine stalls. Work that shows only in CPU time or I/O counts as a sign of life."""
        loop = asyncio.get_running_loop()
        step = min(1.0, self._limits.stall_s / 10)
        before = processes.activity(child.pid)
        while (quiet := loop.time() - self._sign_of_life) < self._limits.stall_s:
            await asyncio.sleep(step)
            now = processes.activity(child.pid)
            if now.io_bytes > before.io_bytes or now.cpu_s - before.cpu_s > _BUSY * step:
                self._sign_of_life = loop.time()
            before = now
        self._set_outcome(Stalled(quiet))

    async def _poll_health(self) -> None:
        """Ask /health until the engine is ready: the fallback for builds without state lines."""
        await asyncio.sleep(_SILENT_S)
        while not self._speaks:
            if await self._get("/health") is not None:
                self._set_outcome(_Ready({}))
                return
            await asyncio.sleep(_POLL_S)

    async def _describe(self, info: Mapping[str, object]) -> ReadyInfo:
        """Ask for what the ready line lacks, and thereby wait for the engine's loop.

        Only /slots is answered by that loop, which starts just after the ready line and forgets an exit line that came
        before; /props is for engines without /slots.
        """
        facts = slot_facts(await self._get("/slots")) or slot_facts(await self._get("/props"))
        n_ctx, n_slots = facts or (context_of(info), None)
        return ReadyInfo(n_ctx, n_slots, info)

    async def _noted(self, info: ReadyInfo, pid: int, seconds: float) -> ReadyInfo:
        """Return the facts with the engine's footprint."""
        if self._hushed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TOLD_S):
                    await self._told.wait()
        self._told.set()
        if self._notes is None:
            return info
        found = self._notes.ready(pid, seconds, info.n_ctx, self._account.footprint())
        return replace(info, footprint=found)

    async def _answers(self, within: float) -> bool:
        try:
            async with asyncio.timeout(within), self.client.get("/health") as response:
                return response.status > 0
        except (EngineUnreachable, TimeoutError):
            return False

    async def _get(self, path: str) -> object:
        """Return JSON from the engine; None when it does not answer 200 with JSON in time."""
        try:
            async with asyncio.timeout(_HTTP_S), self.client.get(path) as response:
                return await response.json() if response.status == 200 else None
        except (EngineUnreachable, TimeoutError, ValueError, RecursionError):
            return None
