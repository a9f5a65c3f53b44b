"""Tend one engine: bring it up, watch it and take it down. An engine object is started once and never again.

Ready is what the engine says, or what its manner finds by asking. There is no limit on how long a start may take, only
on how long it may show no sign of life: no output, no I/O, no CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.engine_output.failures import Cause
from supervisor.core.takeover.carried import HeldProcess
from supervisor.engines.failed import Stalled
from supervisor.engines.log import OutputLog
from supervisor.engines.manner import Heard, LoadProgress, Manner, ReadyInfo
from supervisor.errors import EngineStartFailed
from supervisor.system import processes
from supervisor.system.child import Child, ExitStatus, StopGrace

__all__ = ["Engine", "EngineLimits", "LoadProgress", "ReadyInfo"]

_BUSY = 0.05  # of one core: less CPU than this is a process that waits, not one that works
_LAST_LINES = 400  # of this start's output, where the reason of a failure is looked for


@dataclass(frozen=True)
class EngineLimits:
    """Limits in seconds: `stall_s` without a sign of life end a start; `grace` is how long a stop may take."""

    stall_s: float = 120.0
    grace: StopGrace = field(default_factory=StopGrace)


@dataclass(frozen=True)
class _Ready:
    info: Mapping[str, object]


class Engine:
    """A process of ours that answers HTTP.

    Args:
        manner: what is particular to it; its socket must not exist yet.
        log: where its manner puts what it writes.
        record_dir: where the child's record lives.
        limits: patience.

    Attributes:
        client: HTTP to it.
        argv: its command.
    """

    def __init__(self, manner: Manner, *, log: OutputLog, record_dir: Path, limits: EngineLimits) -> None:
        loop = asyncio.get_running_loop()
        self.socket = manner.command.socket
        self.client = manner.client
        self.argv = manner.command.argv
        self._manner = manner
        self._log = log
        self._record_dir = record_dir
        self._limits = limits
        self._exit: asyncio.Future[ExitStatus] = loop.create_future()
        self._outcome: asyncio.Future[_Ready | Stalled | ExitStatus] = loop.create_future()
        self._spawning: asyncio.Task[Child] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._disowned = False
        self._on_progress: Callable[[LoadProgress], None] | None = None
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
        return self._manner.broken

    def note_broken(self, message: str) -> None:
        """Take the error of a failed device from one of its answers. `broken` follows as soon as its log tells why."""
        self._manner.note_broken(message)

    def note_lost(self, cause: Cause) -> None:
        """Take note that one of its devices is lost, by what another one has told. `broken` is done then."""
        if not self._manner.broken.done():
            self._manner.broken.set_result(cause)

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the newest lines of output."""
        return self._log.said(lines)

    def newest(self, lines: int) -> tuple[tuple[str, bool], ...]:
        """Return the newest lines of the log, each with whether it is a note of the daemon."""
        return self._log.newest(lines)

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

    async def adopt(
        self,
        held: HeldProcess,
        argv: tuple[str, ...],
        info: Mapping[str, object],
        said: Sequence[tuple[str, bool]] = (),
    ) -> None:
        """Take in the process of an engine that is ready, in place of `start`.

        argv: its command, as it was started. info: what it said of itself when it was ready. said: the newest lines of
        its log, each with whether it is a note of ours.

        Raises NotOurs where it is not provably that process, and OSError. It is not ended then.
        """
        self._log.go_on_after(said)
        self._child = child = await Child.adopt(
            held,
            on_stdout=lambda line: self._hear(line, out=True),
            on_stderr=lambda line: self._hear(line, out=False),
        )
        self._spawning = asyncio.ensure_future(_at_once(child))
        self._set_outcome(_Ready({}))
        self.argv = argv
        self._manner.adopted(child.pid, argv, info)
        child.exit.add_done_callback(lambda exit: self._ended(exit.result()))

    def held(self) -> HeldProcess:
        """Return what is needed to adopt its process. Raises OSError where it is ending."""
        if self._child is None or self._exit.done() or self._stopping is not None:
            raise OSError("the engine is ending")
        return self._child.held()

    def disown(self) -> None:
        """Leave its process to another one, whose child it is. Requests to it go on, and its output is still read."""
        self._disowned = True
        if self._child is not None:
            self._child.disown()

    def let_go(self) -> tuple[bytes, bytes]:
        """Read no more of its output; return what has come of lines that have not ended, of output and error."""
        return (b"", b"") if self._child is None else self._child.let_go()

    def ended_elsewhere(self, status: ExitStatus) -> None:
        """Take note that the process is gone that was disowned."""
        if not self._exit.done():
            self._exit.set_result(status)

    async def alive(self, within: float) -> bool:
        """Return whether it answers within that many seconds, or at least takes CPU time or does I/O."""
        if self._child is None or await self._manner.answers(within / 2):
            return True
        before = processes.activity(self._child.pid)
        deadline = asyncio.get_running_loop().time() + within / 2
        if await self._manner.answers(within / 2):
            return True
        await asyncio.sleep(deadline - asyncio.get_running_loop().time())
        now = processes.activity(self._child.pid)
        return now.io_bytes > before.io_bytes or now.cpu_s - before.cpu_s > _BUSY * within / 2

    def memory(self) -> int | None:
        """Return the bytes of the host's memory that it holds, without mapped files; None where that is unknown."""
        return None if self._child is None else self._manner.memory(self._child.pid)

    async def park(self) -> None:
        """Save what is to be kept of it, before `stop`. It takes a bounded time, and never fails."""
        if self._is_ready() and not self._exit.done() and not self._disowned:
            await self._manner.park()

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
            program, reason = self._manner.command.argv[0], error.strerror or error
            full = "; free some room on the disk of the state folder" if error.errno == errno.ENOSPC else ""
            raise EngineStartFailed(f"{program} could not be started: {reason}{full}") from error
        watchers = (asyncio.create_task(self._watch_for_stall(child)), asyncio.create_task(self._look_for_ready()))
        try:
            outcome = await asyncio.shield(self._outcome)
        finally:
            self._on_progress = None
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
        if isinstance(outcome, _Ready):
            seconds = asyncio.get_running_loop().time() - began
            info = await self._manner.describe(outcome.info)
            if not self._exit.done():
                info = await self._manner.settle(child.pid, seconds, info)
            if not self._exit.done():
                return info
            outcome = self._exit.result()
        raise self._manner.failed(outcome, self.tail(min(_LAST_LINES, self._log.written - self._first_line)))

    async def _stop(self) -> None:
        status = ExitStatus(None, None)
        self.client.close()  # with a stream open, llama-server ends neither when asked nor on the first SIGTERM
        if self._disowned:
            return
        if self._spawning is not None:
            with contextlib.suppress(Exception):  # start() reports why it could not be spawned; nothing is left to stop
                child = await self._spawning
                if not self._exit.done():
                    await self._manner.end(child.pid)
                ask = self._manner.ask_to_end(ready=self._is_ready())
                status = await child.stop(ask=ask, grace=self._limits.grace)
        self._ended(status)

    async def _spawn(self) -> Child:
        command = self._manner.command
        child = await Child.spawn(
            command.argv,
            env=command.env,
            on_stdout=lambda line: self._hear(line, out=True),
            on_stderr=lambda line: self._hear(line, out=False),
            record_dir=self._record_dir,
            socket=self.socket,
        )
        self._child = child
        processes.end_first(child.pid)
        child.exit.add_done_callback(lambda exit: self._ended(exit.result()))
        return child

    def _ended(self, status: ExitStatus) -> None:
        if not self._exit.done():
            if self.socket:
                Path(self.socket).unlink(missing_ok=True)
            self._log.rest()
            self._exit.set_result(status)
            self._set_outcome(status)

    def _set_outcome(self, outcome: _Ready | Stalled | ExitStatus) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _hear(self, line: bytes, *, out: bool) -> None:
        heard = self._manner.hear(line, out=out)
        if heard is None or not heard.echo:
            self._sign_of_life = asyncio.get_running_loop().time()
        if heard is not None:
            self._take(heard)

    def _take(self, heard: Heard) -> None:
        if heard.ready is not None:
            self._set_outcome(_Ready(heard.ready))
        elif heard.progress is not None and self._on_progress is not None:
            self._on_progress(heard.progress)

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

    async def _look_for_ready(self) -> None:
        self._set_outcome(_Ready(await self._manner.found_ready()))


async def _at_once(child: Child) -> Child:
    return child
