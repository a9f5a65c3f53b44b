"""An engine that is played: it takes its time to load, and answers as long as nobody ends it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from supervisor.core.engine_output.failures import Cause
from supervisor.core.engine_output.statelines import LoadProgress
from supervisor.core.takeover.carried import HeldProcess
from supervisor.engines.client import EngineClient
from supervisor.engines.manner import ReadyInfo
from supervisor.system.child import ExitStatus

_PIDS = itertools.count(1)


class PlayedEngine:
    """It (`PooledEngine`).

    slots: requests at once. load_s: seconds. lives: is told True once it starts, and False at its end.
    """

    argv: tuple[str, ...] = ()

    def __init__(self, slots: int, load_s: float, lives: Callable[[bool], None]) -> None:
        loop = asyncio.get_running_loop()
        self.client = EngineClient("")
        self.exit: asyncio.Future[ExitStatus] = loop.create_future()
        self.broken: asyncio.Future[Cause] = loop.create_future()
        self.pid: int | None = None
        self._slots = slots
        self._load_s = load_s
        self._lives = lives

    async def start(self, on_progress: Callable[[LoadProgress], None]) -> ReadyInfo:
        self.pid = next(_PIDS)
        self._lives(True)
        try:
            await asyncio.sleep(self._load_s)
        except asyncio.CancelledError:
            self.kill()
            raise
        return ReadyInfo(4096, self._slots, {})

    async def alive(self, within: float) -> bool:
        return True

    def memory(self) -> int | None:
        return None

    async def park(self) -> None:
        return

    async def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        if not self.exit.done():
            self.exit.set_result(ExitStatus(0, None))
            if self.pid is not None:
                self._lives(False)

    def note_broken(self, message: str) -> None:
        raise NotImplementedError

    def note_lost(self, cause: Cause) -> None:
        raise NotImplementedError

    def tail(self, lines: int) -> tuple[str, ...]:
        return ()

    def newest(self, lines: int) -> tuple[tuple[str, bool], ...]:
        return ()

    def held(self) -> HeldProcess:
        raise OSError("it is played")

    def disown(self) -> None:
        raise NotImplementedError

    def let_go(self) -> tuple[bytes, bytes]:
        return b"", b""

    def ended_elsewhere(self, status: ExitStatus) -> None:
        raise NotImplementedError
