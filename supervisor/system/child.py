"""One child process: its output is always drained, its end is always noticed, and it never outlives us.

- It leads a session of its own, so that a Ctrl-C in our terminal is not its business and a signal reaches all it forks.
- It dies with us: its stdin is a pipe whose end it can see, and on Linux the kernel kills it when we die.
- Its pid and start time are on disk while it lives; `records.end_leftovers` ends what a killed daemon left.
- When it ends, whatever is left of its session is killed: a wrapper script must not leave the engine behind.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from supervisor.core.takeover.carried import HeldProcess
from supervisor.core.text.linecutter import LineCutter
from supervisor.system import processes, records
from supervisor.system.adopted import adopted

_DRAIN_S = 1.0  # how long output may trickle in and forked processes may die after the exit
_LAST_LOOKS = 4  # rounds of the loop after that: a process that was not let run has not read what is in the pipes


@dataclass(frozen=True)
class ExitStatus:
    """The end of a process, with an exit code or by a signal. Neither: it never came to life."""

    code: int | None
    signal: int | None

    @classmethod
    def of(cls, returncode: int) -> ExitStatus:
        """Convert Python's convention: a negative code is a signal."""
        return cls(None, -returncode) if returncode < 0 else cls(returncode, None)

    def __str__(self) -> str:
        if self.signal is not None:
            return f"signal {self.signal} ({_signal_name(self.signal)})"
        return "never started" if self.code is None else f"exit code {self.code}"


@dataclass(frozen=True)
class StopGrace:
    """Seconds to wait after asking and after each of two SIGTERMs before the next, harsher step."""

    ask_s: float = 3.0
    term_s: float = 1.0


class Child:
    """A running (or ended) child process. Made by `spawn`; lives on one event loop."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: _Output) -> None:
        self._transport = transport
        self._output = output
        self._record: Path | None = None
        self._disowned = False
        self._stopping: asyncio.Task[ExitStatus] | None = None
        self.pid = transport.get_pid()
        self.create_time = processes.create_time(self.pid) or 0.0
        self._exit: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        output.when_over(self._ended)

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
        record_dir: Path | None,
        socket: str = "",
    ) -> Child:
        """Start a process with exactly this environment; raises OSError where it cannot be started.

        The callbacks get one line at a time, without its end. `socket` is only noted in the record, so that a
        leftover's socket file can be removed. Cancelling kills the process if it is there already.
        """
        loop = asyncio.get_running_loop()
        transport, output = await loop.subprocess_exec(
            lambda: _Output(on_stdout, on_stderr),
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
            preexec_fn=processes.parent_death_hook(),
        )
        child = cls(transport, output)
        if record_dir is not None:
            try:
                child._keep_record(record_dir, records.Record(child.pid, child.create_time, argv[0], socket))
            except OSError:
                await child.stop(ask=None, grace=StopGrace(0, 0))
                raise
        return child

    @classmethod
    async def adopt(
        cls, held: HeldProcess, *, on_stdout: Callable[[bytes], None], on_stderr: Callable[[bytes], None]
    ) -> Child:
        """Take in a child that an earlier image of this process has started; the callbacks are those of `spawn`.

        Raises NotOurs where it is not provably that process, and OSError where a descriptor is none of its pipes.
        """
        output = _Output(on_stdout, on_stderr)
        output.go_on_with(*held.unread)
        child = cls(await adopted(held.pid, held.create_time, held.pipes, output), output)
        if held.record and not child._exit.done():
            child._record = Path(held.record)
        return child

    def held(self) -> HeldProcess:
        """Return what the next image of this process needs to adopt it."""
        pipes = [descriptor_of(self._transport.get_pipe_transport(number)) for number in range(3)]
        record = "" if self._record is None else str(self._record)
        return HeldProcess(self.pid, self.create_time, record, (pipes[0], pipes[1], pipes[2]), self._output.unread())

    def disown(self) -> None:
        """Leave it to another process, whose child it is: nothing here ends it. Its output is still read."""
        self._disowned = True
        self._record = None

    def let_go(self) -> tuple[bytes, bytes]:
        """Read no more of it; return what has come of lines that have not ended, of output and error."""
        for number in range(3):
            pipe = self._transport.get_pipe_transport(number)
            if pipe is not None:
                pipe.close()
        return self._output.unread()

    @property
    def exit(self) -> asyncio.Future[ExitStatus]:
        """Done when the process is reaped and its output delivered; cancelling a waiter cancels nothing else."""
        return asyncio.shield(self._exit)

    def write_line(self, line: bytes) -> None:
        """Write a line to its stdin; silently nothing when that is closed."""
        stdin = cast(asyncio.WriteTransport | None, self._transport.get_pipe_transport(0))
        if stdin is not None and not stdin.is_closing():
            stdin.write(line + b"\n")

    def kill(self) -> None:
        """Send SIGKILL to its whole session, now; `stop` and `exit` tell when it is gone."""
        if not self._exit.done() and not self._disowned:
            processes.signal_session(self.pid, signal.SIGKILL)

    async def stop(self, *, ask: bytes | None, grace: StopGrace) -> ExitStatus:
        """End it: write `ask` to stdin (None: skip), then SIGTERM twice, then SIGKILL; return how it ended.

        Idempotent. Concurrent callers share one attempt, the first one's; a cancelled caller does not end it.
        """
        if self._disowned:
            return ExitStatus(None, None)
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(ask, grace))
        return await asyncio.shield(self._stopping)

    async def _stop(self, ask: bytes | None, grace: StopGrace) -> ExitStatus:
        if ask is not None and not self._exit.done():
            self.write_line(ask)
            await self._ends_within(grace.ask_s)
        for _ in range(2):  # the second one means "at once", to llama-server as to many programs
            if not self._exit.done():
                self._close_stdin()  # llama-server's SIGTERM waits for the thread that reads it
                processes.signal_session(self.pid, signal.SIGTERM)
                await self._ends_within(grace.term_s)
        while not self._exit.done():  # again and again: what is being forked just now escapes a single round
            processes.signal_session(self.pid, signal.SIGKILL)
            await self._ends_within(0.1)
        return self._exit.result()

    async def _ends_within(self, seconds: float) -> None:
        await asyncio.wait({self._exit}, timeout=seconds)

    def _close_stdin(self) -> None:
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()

    def _keep_record(self, folder: Path, record: records.Record) -> None:
        if not self._exit.done():
            self._record = records.write_record(folder, record)

    def _ended(self, returncode: int) -> None:
        self._transport.close()
        if self._record is not None:
            self._record.unlink(missing_ok=True)
        self._exit.set_result(ExitStatus.of(returncode))


class _Output(asyncio.SubprocessProtocol):
    """Drains both pipes into lines and says once when the process is reaped and its output complete."""

    def __init__(self, on_stdout: Callable[[bytes], None], on_stderr: Callable[[bytes], None]) -> None:
        self._pipes = {1: LineCutter(on_stdout), 2: LineCutter(on_stderr)}
        self._returncode: int | None = None
        self._when_over: Callable[[int], None] | None = None
        self._over = False
        self._transport: asyncio.SubprocessTransport | None = None

    def go_on_with(self, out: bytes, err: bytes) -> None:
        """Begin in the middle of these lines."""
        for number, unread in ((1, out), (2, err)):
            self._pipes[number].feed(unread, asyncio.get_running_loop().time())

    def unread(self) -> tuple[bytes, bytes]:
        """Return what has come of lines that have not ended."""
        return self._pipes[1].rest, self._pipes[2].rest

    def when_over(self, call: Callable[[int], None]) -> None:
        """Set the one listener; called at once if all is over already."""
        self._when_over = call
        if self._over:
            call(cast(int, self._returncode))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._pipes[fd].feed(data, asyncio.get_running_loop().time())

    def process_exited(self) -> None:
        transport = cast(asyncio.SubprocessTransport, self._transport)
        self._returncode = cast(int, transport.get_returncode())
        processes.signal_session(transport.get_pid(), signal.SIGKILL)
        asyncio.get_running_loop().call_later(_DRAIN_S, self._look, _LAST_LOOKS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the process is reaped and all pipes are at their end; what it forked may be dying still."""
        pid = cast(asyncio.SubprocessTransport, self._transport).get_pid()
        if not self._over and processes.session_members(pid):
            processes.signal_session(pid, signal.SIGKILL)
            asyncio.get_running_loop().call_later(0.005, self.connection_lost, exc)
        else:
            self._finish()

    def _look(self, more: int) -> None:
        """Let the loop read what is there, so many times, and finish."""
        if more:
            asyncio.get_running_loop().call_soon(self._look, more - 1)
        else:
            self._finish()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        for lines in self._pipes.values():
            lines.end()
        if self._when_over is not None:
            self._when_over(cast(int, self._returncode))


def descriptor_of(pipe: asyncio.BaseTransport | None) -> int:
    """Return the descriptor under a pipe's transport. Raises OSError where it has none any more."""
    under = None if pipe is None else pipe.get_extra_info("pipe") or pipe.get_extra_info("socket")
    if under is None or under.fileno() < 0:
        raise OSError("a pipe of the process is closed")
    descriptor: int = under.fileno()
    return descriptor


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
