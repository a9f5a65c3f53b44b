"""The pool's record of one engine, the leases it hands out, and the status of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from supervisor.core.engine_output.failures import CODES, OPTION, Cause
from supervisor.core.schedule import EngineView, ModelView
from supervisor.core.schedule.events import EngineId, Failure, ModelId, Plan
from supervisor.core.takeover.carried import HeldProcess
from supervisor.engines.client import EngineClient
from supervisor.engines.engine import LoadProgress, ReadyInfo
from supervisor.errors import (
    ContextUnknown,
    CrashLoop,
    DraftOnly,
    EngineHung,
    EngineNotFound,
    EngineStalled,
    EngineStartFailed,
    EngineUnusable,
    GgufError,
    InvalidRequest,
    LoadCancelled,
    MemoryUnknown,
    ModelConfigError,
    ModelDoesNotFit,
    ModelFileError,
    ModelLoadFailed,
    NotSupportedByEngine,
    OptionNotSupported,
    ProjectorAlone,
    QueueFull,
    SafetensorsError,
    ShardMissing,
    ShuttingDown,
    SupervisorError,
    VocabularyOnly,
)
from supervisor.system.child import ExitStatus


class PooledEngine(Protocol):
    """The parts of an engine that the pool needs."""

    client: EngineClient
    argv: tuple[str, ...]

    @property
    def pid(self) -> int | None:
        """Process id; None before there is a process."""

    @property
    def exit(self) -> asyncio.Future[ExitStatus]:
        """Future that is done when the process is gone, for whatever reason."""

    @property
    def broken(self) -> asyncio.Future[Cause]:
        """Future that is done when its device has failed and it can work no more."""

    def note_broken(self, message: str) -> None:
        """Take the error of a failed device from one of its answers. `broken` follows."""

    def note_lost(self, cause: Cause) -> None:
        """Take note that one of its devices is lost. `broken` is done then."""

    async def start(self, on_progress: Callable[[LoadProgress], None]) -> ReadyInfo:
        """Bring the engine up. Raise EngineStartFailed. Cancelling leaves nothing behind."""

    async def alive(self, within: float) -> bool:
        """Return whether it answers, or at least works, within that many seconds."""

    def memory(self) -> int | None:
        """Return the bytes of the host's memory that it holds; None where that is unknown."""

    async def park(self) -> None:
        """Save what is to be kept of an idle engine before `stop`; takes a bounded time and does not fail."""

    async def stop(self) -> None:
        """End the engine in whatever state it is; return when it is reaped."""

    def kill(self) -> None:
        """End it without asking, also while `stop` waits for it."""

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the last lines that it wrote."""

    def newest(self, lines: int) -> tuple[tuple[str, bool], ...]:
        """Return the last lines of its log, each with whether it is a note of the daemon."""

    def held(self) -> HeldProcess:
        """Return what the next image of this process needs to adopt it. Raises OSError where it is ending."""

    def disown(self) -> None:
        """Leave its process to another one, whose child it is. Its output is still read."""

    def let_go(self) -> tuple[bytes, bytes]:
        """Read no more of its output; return what has come of lines that have not ended."""

    def ended_elsewhere(self, status: ExitStatus) -> None:
        """Take note that the process is gone that was disowned."""


@dataclass(slots=True)
class Running:
    """The pool's record of one engine. `hung`: it is ended because it does not answer. `broken`: its
    device failed, so that it is ended as well. `park`: it may save its slots.

    doubt: it is to be asked at once whether it lives. first_bytes: what it held soon after it was ready.
    ended: the process that owns it has ended it, as was wanted.
    """

    number: EngineId
    model: ModelId
    plan: Plan
    asked_at: float
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    hung: bool = False
    broken: Failure | None = None
    park: bool = False
    doubt: asyncio.Event = field(default_factory=asyncio.Event)
    first_bytes: int | None = None
    outgrown: bool = False
    ended: bool = False
    engine: PooledEngine | None = None
    progress: LoadProgress | None = None
    ready: ReadyInfo | None = None
    ready_at: float | None = None


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The status of one engine. Times are seconds of the pool's clock."""

    view: EngineView
    progress: LoadProgress | None = None
    ready: ReadyInfo | None = None
    pid: int | None = None
    load_seconds: float | None = None
    ready_at: float | None = None

    @classmethod
    def of(cls, view: EngineView, running: Running | None) -> EngineStatus:
        """Return the status; `running` is None while the engine only waits for its room."""
        if running is None:
            return cls(view)
        return cls(
            view=view,
            progress=running.progress,
            ready=running.ready,
            pid=running.engine.pid if running.engine else None,
            load_seconds=running.ready_at - running.asked_at if running.ready_at is not None else None,
            ready_at=running.ready_at,
        )


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The status of one model; `best`: its most usable engine."""

    view: ModelView
    engines: tuple[EngineStatus, ...] = ()

    @property
    def best(self) -> EngineStatus | None:
        return next((engine for engine in self.engines if engine.view.engine == self.view.engine), None)


class Lease:
    """A request's right to use an engine. Whoever holds it gives it back once; more often does no harm."""

    def __init__(self, running: Running, give_back: Callable[[], None]) -> None:
        assert running.engine is not None  # only ready engines are granted
        self.engine = running.engine
        self._running = running
        self._give_back: Callable[[], None] | None = give_back

    @property
    def model(self) -> ModelId:
        """Model that the engine serves."""
        return self._running.model

    @property
    def number(self) -> EngineId:
        """Number of the engine."""
        return self._running.number

    @property
    def client(self) -> EngineClient:
        """HTTP client of the engine."""
        return self.engine.client

    @property
    def engine_stopped(self) -> bool:
        """True if the engine was told to stop because its end is wanted, so that none is started in its place."""
        running = self._running
        return (running.stop.is_set() or running.ended) and not running.hung and running.broken is None

    async def engine_gone(self, within: float) -> bool:
        """Return whether the engine ends `within` that many seconds, so that the next lease is a fresh engine's."""
        try:
            async with asyncio.timeout(within):
                return await self._running.gone.wait()
        except TimeoutError:
            return False

    @property
    def broken(self) -> Failure | None:
        """Failure of the engine's device under its answers; None where it has not failed."""
        return self._running.broken

    def note_broken(self, message: str) -> None:
        """Tell that it answered with the error of a failed device. It is ended, and `broken` will say why."""
        self.engine.note_broken(message)

    def release(self) -> None:
        """Give it back. Not a coroutine, so that no cancellation can come between."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


_ERRORS: dict[str, type[SupervisorError]] = {
    kind.code: kind
    for kind in (
        *(
            ShuttingDown,
            LoadCancelled,
            ModelDoesNotFit,
            MemoryUnknown,
            CrashLoop,
            EngineNotFound,
            EngineUnusable,
            EngineHung,
        ),
        *(
            ModelFileError,
            GgufError,
            SafetensorsError,
            ModelConfigError,
            ShardMissing,
            ProjectorAlone,
            VocabularyOnly,
            DraftOnly,
            ContextUnknown,
            NotSupportedByEngine,
        ),
    )
}


def error_of(failure: Failure) -> SupervisorError:
    """Return the error for whoever asked for the model, made of this failure."""
    if failure.code == QueueFull.code:
        return QueueFull(failure.message, retry_after=failure.retry_after or 1.0)
    known = _ERRORS.get(failure.code)
    if known is not None:
        return known.told(failure.message, failure.log_lines)
    cause = failure.code if failure.code in CODES or failure.code == EngineStalled.code else None
    return ModelLoadFailed(failure.message, code=cause, log_lines=failure.log_lines)


def failure_of(error: SupervisorError) -> Failure:
    """Return the failure for the scheduler, made of an error that ended a start."""
    match error:
        case EngineStartFailed():
            return Failure(error.code, error.message, error.log_lines, device=error.device, lacking=error.lacking)
        case OptionNotSupported() | InvalidRequest():
            return Failure(OPTION, error.message, error.log_lines)
        case _:
            return Failure(error.code, error.message, error.log_lines)
