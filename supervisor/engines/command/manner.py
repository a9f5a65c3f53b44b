"""The manner of a command: ready when its path answers, ended by a signal or by the command that is said to end it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.core.engine_output.failures import CRASHED, KILLED, LIBRARY, OUT_OF_MEMORY, Cause
from supervisor.core.environment import for_engines
from supervisor.engines.client import Address, EngineClient, EngineUnreachable
from supervisor.engines.command.measured import Measured
from supervisor.engines.command.options import READY_AT_ONCE, CommandOptions
from supervisor.engines.failed import Stalled, failed_start
from supervisor.engines.log import OutputLog
from supervisor.engines.manner import Command, Heard, ReadyInfo
from supervisor.errors import EngineStartFailed
from supervisor.system import processes
from supervisor.system.child import Child, ExitStatus, StopGrace

_FIRST_POLL_S, _LAST_POLL_S = 0.1, 1.0
_POLLS = 20  # questions for each time that a load is twice as long
_ECHO = Heard(echo=True)
_HTTP_S = 5.0
_STOP_S = 30.0  # what a command may take that ends an engine; containers are given ten seconds by their runners
_OF_EVERYBODY = frozenset({OUT_OF_MEMORY, KILLED, CRASHED, LIBRARY})


@dataclass(frozen=True)
class Listening:
    """Where an engine listens, and how that is written in its command.

    address: a socket's path, or host and port.
    """

    address: Address
    words: Mapping[str, str]

    def put_in(self, arguments: tuple[str, ...], **more: str) -> tuple[str, ...]:
        """Return the arguments with what stands for a place replaced by it."""
        words = {**self.words, **{f"${{{name}}}": value for name, value in more.items()}}
        found = []
        for argument in arguments:
            for mark, word in words.items():
                argument = argument.replace(mark, word)
            found.append(argument)
        return tuple(found)


def child_env(ours: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a command: what every engine gets of ours, and the variables of its own."""
    return {**for_engines(ours), **more}


class CommandManner:
    """What is particular to the engine of one command.

    Args:
        options: the command's.
        listening: where the engine is to listen.
        env: our own environment, of which it gets a part, and the variables that it gets beside.
        log: gets every line of output.
        measured: what it holds; None: it is in a container, and cannot be measured.
    """

    def __init__(
        self,
        options: CommandOptions,
        listening: Listening,
        env: tuple[Mapping[str, str], Mapping[str, str]],
        log: OutputLog,
        measured: Measured | None,
    ) -> None:
        socket = listening.address if isinstance(listening.address, str) else ""
        self.command = Command(listening.put_in(options.command), child_env(*env), socket)
        self.client = EngineClient(listening.address)
        self.broken: asyncio.Future[Cause] = asyncio.get_running_loop().create_future()
        self._env = env
        self._asking = f"GET {options.ready} ".encode()
        self._options = options
        self._listening = listening
        self._log = log
        self._measured = measured
        self._pid: int | None = None

    def note_broken(self, message: str) -> None:
        """Do nothing: of another program's errors it is not known which of them tell of a broken device."""

    def hear(self, line: bytes, *, out: bool) -> Heard | None:
        """Put the line into the log, unless it tells of a question of ours. It says nothing that is known."""
        if self._asking in line:
            return _ECHO
        self._log.write(line)
        return None

    async def found_ready(self) -> Mapping[str, object]:
        """Ask again and again until it is ready; the longer it takes, the less often."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await self._is_ready():  # noqa: ASYNC110 - another process is asked
            await asyncio.sleep(min(_LAST_POLL_S, max(_FIRST_POLL_S, (loop.time() - began) / _POLLS)))
        return {}

    async def describe(self, info: Mapping[str, object]) -> ReadyInfo:
        """Return the slots that people say it has."""
        return ReadyInfo(None, self._options.slots, info)

    async def settle(self, pid: int, seconds: float, info: ReadyInfo) -> ReadyInfo:
        """Measure it for the first time."""
        self._pid = pid
        await self._look()
        footprint = None if self._measured is None else self._measured.footprint()
        return ReadyInfo(info.n_ctx, info.n_slots, info.info, footprint)

    def adopted(self, pid: int, argv: tuple[str, ...], info: Mapping[str, object]) -> None:
        """Note which process is to be measured."""
        self._pid = pid

    async def answers(self, within: float) -> bool:
        """Return whether it answers within that many seconds; measure it when it does."""
        found = await self._status(within) is not None
        if found:
            await self._look()
        return found

    def memory(self, pid: int) -> int | None:
        """Return the bytes of its own pages; None: it is in a container."""
        return None if self._measured is None else processes.session_anonymous_bytes(pid)

    async def park(self) -> None:
        """Do nothing: it has nothing that could be saved."""

    def ask_to_end(self, *, ready: bool) -> bytes | None:
        """Return None: it gets SIGTERM."""
        return None

    async def end(self, pid: int) -> None:
        """Run the command that ends it, if there is one."""
        if not self._options.stop:
            return
        argv = self._listening.put_in(self._options.stop, PID=str(pid))
        with contextlib.suppress(OSError):
            child = await Child.spawn(
                argv, env=child_env(*self._env), on_stdout=self._log.write, on_stderr=self._log.write, record_dir=None
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await child.exit
            await child.stop(ask=None, grace=StopGrace(0, 1))

    def failed(self, outcome: Stalled | ExitStatus, said: tuple[str, ...]) -> EngineStartFailed:
        """Return the error of a start, with a cause where it is one that every program may have."""
        found = failed_start(outcome, said, {})
        if isinstance(outcome, Stalled) or found.code in _OF_EVERYBODY:
            return found
        return EngineStartFailed(
            f"The command of the engine ended before it was ready: {outcome}. Its last lines say why; "
            "`supervisor logs` has more.",
            log_lines=said[-5:],
        )

    async def _look(self) -> None:
        if self._measured is not None and self._pid is not None:
            await asyncio.to_thread(self._measured.look, self._pid)

    async def _is_ready(self) -> bool:
        status = await self._status(_HTTP_S)
        return status is not None and (self._options.ready == READY_AT_ONCE or status in self._options.ready_statuses)

    async def _status(self, within: float) -> int | None:
        """Return the status of its path; 0 where it has none and takes connections; None: neither."""
        try:
            async with asyncio.timeout(within):
                if self._options.ready == READY_AT_ONCE:
                    await self.client.reach()
                    return 0
                async with self.client.get(self._options.ready) as response:
                    return response.status
        except (EngineUnreachable, TimeoutError):
            return None
