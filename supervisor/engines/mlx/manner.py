"""The manner of the launcher: it says when it is ready, in llama-server's words, and ends by a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from supervisor.core.engine_output.failures import OUT_OF_MEMORY, Cause
from supervisor.core.engine_output.statelines import context_of, load_progress, parse_state
from supervisor.core.environment import for_engines
from supervisor.engines.client import EngineClient, EngineUnreachable
from supervisor.engines.command.measured import Measured
from supervisor.engines.failed import Stalled, failed_start
from supervisor.engines.log import OutputLog
from supervisor.engines.manner import Command, Heard, ReadyInfo
from supervisor.errors import EngineStartFailed
from supervisor.system import processes
from supervisor.system.child import ExitStatus


class MlxManner:
    """What is particular to one launcher.

    Args:
        argv: its command.
        socket: where it listens.
        env: our own environment, of which it gets a part, and the variables that it gets beside.
        log: gets every line of output.
        measured: what it holds.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        socket: str,
        env: tuple[Mapping[str, str], Mapping[str, str]],
        log: OutputLog,
        measured: Measured,
    ) -> None:
        ours, more = env
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.command = Command(argv, {**for_engines(ours), **offline, **more}, socket)
        self.client = EngineClient(socket)
        self.broken: asyncio.Future[Cause] = asyncio.get_running_loop().create_future()
        self._log = log
        self._measured = measured
        self._pid: int | None = None

    def note_broken(self, message: str) -> None:
        """Do nothing: the launcher ends where it can compute no more."""

    def hear(self, line: bytes, *, out: bool) -> Heard | None:
        """Take a state line, or put the line into the log."""
        found = parse_state(line) if out else None
        if found is None:
            self._log.write(line)
            return None
        return Heard(ready=found.payload) if found.state == "ready" else Heard(progress=load_progress(found.payload))

    async def found_ready(self) -> Mapping[str, object]:
        """Return never: its output tells it."""
        never: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        return await never

    async def describe(self, info: Mapping[str, object]) -> ReadyInfo:
        """Return what it says of itself."""
        slots = info.get("n_slots")
        return ReadyInfo(context_of(info), slots if isinstance(slots, int) else None, info)

    async def settle(self, pid: int, seconds: float, info: ReadyInfo) -> ReadyInfo:
        """Measure it for the first time."""
        self._pid = pid
        await asyncio.to_thread(self._measured.look, pid)
        return ReadyInfo(info.n_ctx, info.n_slots, info.info, self._measured.footprint())

    def adopted(self, pid: int, argv: tuple[str, ...], info: Mapping[str, object]) -> None:
        """Note which process is to be measured."""
        self._pid = pid

    async def answers(self, within: float) -> bool:
        """Return whether it answers within that many seconds; measure it when it does."""
        try:
            async with asyncio.timeout(within), self.client.get("/health") as response:
                found = response.status > 0
        except (EngineUnreachable, TimeoutError):
            return False
        if self._pid is not None:
            await asyncio.to_thread(self._measured.look, self._pid)
        return found

    def memory(self, pid: int) -> int | None:
        """Return the bytes of its own pages, weights included: it copies them."""
        return processes.session_anonymous_bytes(pid)

    async def park(self) -> None:
        """Do nothing: mlx-lm's caches cannot be saved by its server."""

    def ask_to_end(self, *, ready: bool) -> bytes | None:
        """Return None: it gets SIGTERM."""
        return None

    async def end(self, pid: int) -> None:
        """Do nothing: its process is all there is."""

    def failed(self, outcome: Stalled | ExitStatus, said: tuple[str, ...]) -> EngineStartFailed:
        """Return the error of a start."""
        found = failed_start(outcome, said, {})
        return found if found.code != OUT_OF_MEMORY else EngineStartFailed(found.message, log_lines=said[-5:])
