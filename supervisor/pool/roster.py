"""The engines that have a process, or are about to, and what another process tells of them once they are its own."""

from __future__ import annotations

from collections.abc import Collection

from supervisor.core.engine_output.failures import Cause
from supervisor.core.schedule.events import EngineId, Failure, ModelId, Plan
from supervisor.pool.lease import PooledEngine, Running
from supervisor.system.child import ExitStatus


class Roster:
    """Those of one pool.

    Attributes:
        engines: by their numbers.
    """

    def __init__(self) -> None:
        self.engines: dict[EngineId, Running] = {}

    @property
    def moving(self) -> bool:
        """True while an engine comes up or goes away."""
        return any(one.ready is None or one.stop.is_set() for one in self.engines.values())

    def pids(self) -> set[int]:
        """Return the processes of the engines."""
        return {
            one.engine.pid for one in self.engines.values() if one.engine is not None and one.engine.pid is not None
        }

    def exit_of(self, number: EngineId) -> tuple[int | None, int | None]:
        """Return exit code and signal of an engine that has ended."""
        running = self.engines.get(number)
        if running is None or running.engine is None or not running.engine.exit.done():
            return None, None
        status = running.engine.exit.result()
        return status.code, status.signal

    def note_broken(self, number: EngineId, message: str) -> None:
        """Take note that an engine has answered another process with the error of a failed device."""
        running = self.engines.get(number)
        if running is not None and running.engine is not None:
            running.engine.note_broken(message)

    def lose(self, devices: Collection[str], cause: Cause) -> None:
        """Have the engines ended that are on one of these devices, by name: it is lost."""
        for running in self.engines.values():
            if running.engine is not None and not running.plan.used_bytes.keys().isdisjoint(devices):
                running.engine.note_lost(cause)

    def disown(self) -> None:
        """Own none of them any more: they are another process's children."""
        for running in self.engines.values():
            if running.engine is not None:
                running.engine.disown()

    def let_go(self) -> dict[EngineId, tuple[bytes, bytes]]:
        """Read no more of what they write; return what has come of lines that have not ended, on output and error."""
        return {number: one.engine.let_go() for number, one in self.engines.items() if one.engine is not None}

    def borrow(self, number: EngineId, model: ModelId, plan: Plan, engine: PooledEngine) -> None:
        """Know an engine of another process. One that is known already stays."""
        if number not in self.engines:
            self.engines[number] = Running(number, model, plan, 0.0, engine=engine)

    def gone(self, number: EngineId, status: ExitStatus, failure: Failure | None, *, told: bool) -> None:
        """Take note that an engine of another process is no more. told: its end was wanted."""
        running = self.engines.get(number)
        if running is None or running.engine is None:
            return
        running.ended = told
        running.engine.ended_elsewhere(status)
        if running.ready is None:  # nobody here lives through its life
            del self.engines[number]
            running.gone.set()
