"""The only owner of engines. It tells the scheduler what happened and does what the scheduler orders.

`_apply` is a plain function: no await lies between reading and writing the scheduler's state, so there is no lock.
Every outcome of a command comes back as an event.
"""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from supervisor.child import ExitStatus
from supervisor.core.events import (
    Command,
    EngineBecameReady,
    EngineGone,
    EngineId,
    EngineSpawned,
    Event,
    Failure,
    GrantLease,
    LoadAsked,
    ModelId,
    RefuseRequest,
    RequestArrived,
    RequestDone,
    RequestId,
    ShutdownAsked,
    StartEngine,
    StopEngine,
    UnloadAsked,
)
from supervisor.core.lifecycle import STARTING, EngineState
from supervisor.core.schedule import ModelView, Scheduler
from supervisor.engine import LoadProgress, ReadyInfo
from supervisor.engine_client import EngineClient
from supervisor.errors import LoadCancelled, ModelLoadFailed, ShuttingDown, SupervisorError


class PooledEngine(Protocol):
    """What the pool needs of an engine."""

    client: EngineClient

    @property
    def pid(self) -> int | None:
        """The process; None before there is one."""

    @property
    def exit(self) -> asyncio.Future[ExitStatus]:
        """Done when the process is gone, for whatever reason."""

    async def start(self, on_progress: Callable[[LoadProgress], None]) -> ReadyInfo:
        """Bring it up; raises EngineStartFailed. Cancelling leaves nothing behind."""

    async def stop(self) -> None:
        """End it in whatever state it is; returns when it is reaped."""

    def tail(self, lines: int) -> tuple[str, ...]:
        """The last lines it wrote."""


_MOVING = STARTING | {EngineState.DRAINING, EngineState.STOPPING}


@dataclass(slots=True)
class _Running:
    """The pool's side of one engine."""

    model: ModelId
    asked_at: float
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    engine: PooledEngine | None = None
    progress: LoadProgress | None = None
    ready: ReadyInfo | None = None
    ready_at: float | None = None


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One model as the pool sees it. Times are seconds of the pool's clock."""

    view: ModelView
    progress: LoadProgress | None = None
    ready: ReadyInfo | None = None
    pid: int | None = None
    load_seconds: float | None = None
    ready_at: float | None = None


class Lease:
    """One request's right to use an engine. Whoever holds it gives it back once; more often does no harm."""

    def __init__(
        self, engine: PooledEngine, stop: asyncio.Event, gone: asyncio.Event, give_back: Callable[[], None]
    ) -> None:
        self.engine = engine
        self._stop = stop
        self._gone = gone
        self._give_back: Callable[[], None] | None = give_back

    @property
    def client(self) -> EngineClient:
        """The HTTP client of the engine."""
        return self.engine.client

    @property
    def engine_stopped(self) -> bool:
        """Whether the engine was told to stop: then its end is wanted, and none is to be started in its place."""
        return self._stop.is_set()

    async def engine_gone(self, within: float) -> bool:
        """Whether the engine ends `within` that many seconds, so that the next lease is one of a fresh engine."""
        try:
            async with asyncio.timeout(within):
                return await self._gone.wait()
        except TimeoutError:
            return False

    def release(self) -> None:
        """Give it back. Plain, so that no cancellation can come between."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class Pool:
    """Runs the scheduler's commands. Use as an async context manager; leaving it ends every engine."""

    def __init__(
        self,
        scheduler: Scheduler,
        prepare: Callable[[ModelId], Awaitable[PooledEngine]],
        clock: Callable[[], float],
        observe: Callable[[str, ModelId, EngineId, Failure | None], None],
    ) -> None:
        self._scheduler = scheduler
        self._prepare = prepare
        self._clock = clock
        self._observe = observe
        self._running: dict[EngineId, _Running] = {}
        self._waiters: dict[RequestId, asyncio.Future[Lease]] = {}
        self._request_ids = itertools.count(1)
        self._watchers: set[asyncio.Event] = set()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut_down()
        await self._tasks.__aexit__(None, None, None)  # the tasks of the engines end by themselves, stopped

    # ── what others ask ──────────────────────────────────────────────────────────────────────────────────────────

    async def acquire(self, model: ModelId) -> Lease:
        """Wait for an engine of the model, loading it where needed.

        Raises ModelLoadFailed with the reason, LoadCancelled, ShuttingDown.
        """
        request = next(self._request_ids)
        waiter: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiters[request] = waiter
        self._apply(RequestArrived(request, model))
        try:
            return await waiter
        except asyncio.CancelledError:
            self._waiters.pop(request, None)
            self._apply(RequestDone(request))  # waiting or just granted: the scheduler knows
            raise

    def ask_load(self, model: ModelId) -> None:
        """Want the model loaded; returns at once."""
        self._apply(LoadAsked(model))

    def ask_unload(self, model: ModelId, *, now: bool = False) -> None:
        """Want the model gone, after its requests or `now`; returns at once."""
        self._apply(UnloadAsked(model, now))

    async def settled(self, model: ModelId) -> PoolStatus:
        """The model's status once its engine neither comes up nor goes away."""
        return await self._first(model, lambda status: status.view.state not in _MOVING)

    async def unload(self, model: ModelId, *, now: bool = False) -> PoolStatus:
        """End the model's engine, after its requests or `now`; returns when its process is gone."""
        engine = self._scheduler.view(model).engine
        self.ask_unload(model, now=now)
        return await self._first(model, lambda _: engine not in self._running)

    def shut_down(self) -> None:
        """Refuse everything from now on and stop every engine; returns at once."""
        self._apply(ShutdownAsked())

    async def drained(self) -> None:
        """Wait until no engine lives."""
        changed = self._watch()
        try:
            while self._running:
                await changed.wait()
                changed.clear()
        finally:
            self._watchers.discard(changed)

    async def follow(self, model: ModelId) -> AsyncGenerator[PoolStatus]:
        """The model's status now and after every change, the newest only."""
        changed = self._watch()
        try:
            while True:
                yield self.status(model)
                await changed.wait()
                changed.clear()
        finally:
            self._watchers.discard(changed)

    async def _first(self, model: ModelId, wanted: Callable[[PoolStatus], bool]) -> PoolStatus:
        async with aclosing(self.follow(model)) as changes:
            return await anext(status async for status in changes if wanted(status))

    def status(self, model: ModelId) -> PoolStatus:
        """The model's status now."""
        view = self._scheduler.view(model)
        running = self._running.get(view.engine) if view.engine is not None else None
        if running is None:
            return PoolStatus(view)
        return PoolStatus(
            view=view,
            progress=running.progress,
            ready=running.ready,
            pid=running.engine.pid if running.engine else None,
            load_seconds=running.ready_at - running.asked_at if running.ready_at is not None else None,
            ready_at=running.ready_at,
        )

    # ── events in, commands out ──────────────────────────────────────────────────────────────────────────────────

    def _apply(self, event: Event) -> None:
        for command in self._scheduler.handle(event, self._clock()):
            self._execute(command)
        for watcher in self._watchers:
            watcher.set()

    def _execute(self, command: Command) -> None:
        match command:
            case StartEngine(engine, model):
                self._running[engine] = _Running(model, self._clock())
                self._tasks.create_task(self._live(engine, model), name=f"engine-{engine}")
                self._observe("engine_start", model, engine, None)
            case StopEngine(engine):
                running = self._running[engine]
                self._observe("engine_stop", running.model, engine, None)
                running.stop.set()
            case GrantLease(request, engine):
                self._grant(request, engine)
            case RefuseRequest(request, failure):
                waiter = self._waiters.pop(request)
                if not waiter.done():
                    waiter.set_exception(_refusal(failure))

    def _grant(self, request: RequestId, engine: EngineId) -> None:
        waiter = self._waiters.pop(request)
        running = self._running[engine]
        assert running.engine is not None  # only ready engines are granted
        if not waiter.done():  # a cancelled one reports RequestDone itself, in acquire()
            give_back = partial(self._apply, RequestDone(request))
            waiter.set_result(Lease(running.engine, running.stop, running.gone, give_back))

    # ── the life of one engine ───────────────────────────────────────────────────────────────────────────────────

    async def _live(self, engine_id: EngineId, model: ModelId) -> None:
        """Prepare, start, watch and stop one engine; it ends by itself or because `stop` is set."""
        running = self._running[engine_id]
        work = asyncio.ensure_future(self._start_and_watch(engine_id, running))
        told = asyncio.ensure_future(running.stop.wait())
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            work.cancel()
        failure = await _outcome(work)
        if running.engine is not None:
            await running.engine.stop()
        self._observe("engine_gone", model, engine_id, failure)
        del self._running[engine_id]
        self._apply(EngineGone(engine_id, failure))
        running.gone.set()

    async def _start_and_watch(self, engine_id: EngineId, running: _Running) -> Failure:
        running.engine = engine = await self._prepare(running.model)
        self._apply(EngineSpawned(engine_id))
        running.ready = await engine.start(lambda progress: self._progressed(running, progress))
        running.ready_at = self._clock()
        self._observe("engine_ready", running.model, engine_id, None)
        self._apply(EngineBecameReady(engine_id))
        how = await engine.exit
        return Failure("engine_lost", f"The engine of '{running.model}' ended by itself: {how}.", engine.tail(20))

    def _progressed(self, running: _Running, progress: LoadProgress) -> None:
        running.progress = progress
        for watcher in self._watchers:
            watcher.set()

    def _watch(self) -> asyncio.Event:
        changed = asyncio.Event()
        self._watchers.add(changed)
        return changed


async def _outcome(work: asyncio.Future[Failure]) -> Failure | None:
    """Why the engine is going: None where it was told to."""
    try:
        return await work
    except asyncio.CancelledError:
        return None
    except SupervisorError as error:
        return Failure(error.code, error.message, error.log_lines)
    except OSError as error:
        return Failure("engine_start_failed", f"The engine could not be started: {error}.")
    except Exception as error:  # noqa: BLE001 - a bug in one engine's life must not take the other engines down
        trace = "".join(traceback.format_exception(error)).splitlines()
        return Failure("internal_error", f"Internal error while starting the engine: {error!r}.", tuple(trace[-12:]))


_REFUSALS: dict[str, type[SupervisorError]] = {
    ShuttingDown.code: ShuttingDown,
    LoadCancelled.code: LoadCancelled,
}


def _refusal(failure: Failure) -> SupervisorError:
    kind = _REFUSALS.get(failure.code)
    if kind is not None:
        return kind(failure.message)
    return ModelLoadFailed(failure.message, log_lines=failure.log_lines)
