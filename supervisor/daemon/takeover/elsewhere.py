"""An engine of the next image, as the pool of the copy knows it: where it answers, and that it may end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from supervisor.core.engine_output.failures import Cause
from supervisor.core.takeover.carried import Address, HeldProcess
from supervisor.engines.client import EngineClient
from supervisor.engines.manner import LoadProgress, ReadyInfo
from supervisor.errors import EngineStartFailed
from supervisor.system.child import ExitStatus


class ElsewhereEngine:
    """One of them (`pool.lease.PooledEngine`). Nothing here starts or ends it.

    Args:
        address: where it answers.
        broken: is told when it answers with the error of a failed device.
    """

    argv: tuple[str, ...] = ()
    pid: int | None = None

    def __init__(self, address: Address, broken: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self.client = EngineClient(address)
        self._told = broken
        self.exit: asyncio.Future[ExitStatus] = loop.create_future()
        self.broken: asyncio.Future[Cause] = loop.create_future()

    def note_broken(self, message: str) -> None:
        """Tell the next image."""
        self._told(message)

    def note_lost(self, cause: Cause) -> None:
        """Nothing: whose it is hears of it as well."""

    def ended_elsewhere(self, status: ExitStatus) -> None:
        """Take note of its end."""
        if not self.exit.done():
            self.exit.set_result(status)

    async def start(self, on_progress: Callable[[LoadProgress], None]) -> ReadyInfo:
        """Raise EngineStartFailed: it runs already."""
        raise EngineStartFailed("the engine is another process's")

    async def alive(self, within: float) -> bool:
        """Return True: others look after it."""
        return True

    def memory(self) -> int | None:
        """Return None: others look after it."""
        return None

    async def park(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing."""

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return nothing: its log is elsewhere."""
        return ()

    def newest(self, lines: int) -> tuple[tuple[str, bool], ...]:
        """Return nothing, likewise."""
        return ()

    def held(self) -> HeldProcess:
        """Raise OSError: it is not held here."""
        raise OSError("the engine is another process's")

    def disown(self) -> None:
        """Do nothing: it never was ours."""

    def let_go(self) -> tuple[bytes, bytes]:
        """Return nothing: it never was read here."""
        return b"", b""
