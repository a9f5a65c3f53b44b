"""Live through one engine's life: prepare, start, watch and stop it."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec

from supervisor.core.engine_output.failures import CODES, OUT_OF_MEMORY, Cause, shortage
from supervisor.core.engine_output.shortage import HOST
from supervisor.core.engine_output.statelines import telling_lines
from supervisor.core.memory.watch import outgrown
from supervisor.core.schedule.events import (
    EngineBecameReady,
    EngineHung,
    EngineId,
    EngineOutgrown,
    EngineSpawned,
    Event,
    Failure,
    ModelId,
    Plan,
)
from supervisor.engines.engine import LoadProgress
from supervisor.errors import SupervisorError
from supervisor.pool.lease import PooledEngine, Running, failure_of
from supervisor.pool.living import Living

P = ParamSpec("P")


@dataclass(frozen=True)
class PoolEdges:
    """The functions of the world that the pool needs.

    Attributes:
        prepare: the engine for a model and its place, not started.
        fetch_and_read: downloads and reads what the planner must know of the model, beside the engines that there are;
            raises a SupervisorError where that cannot be.
        see_room: looks at the machine, lets the planner know, and returns the free bytes by device name. A device that
            is not in the answer counts as free. Runs one at a time.
        clock: monotonic seconds.
        observe: told what happens, for the log; what it raises is dropped.
        emptied: told when the last engine of a model has ended as it was told to; what it raises is dropped.
        allowed: bytes of the host's memory that an engine of this plan may come to hold; None: without limit.
        again: told of a start that failed; whether the next one will be another that may succeed.
    """

    prepare: Callable[[ModelId, Plan], Awaitable[PooledEngine]]
    fetch_and_read: Callable[[ModelId, Living], Awaitable[None]]
    see_room: Callable[[Living], Awaitable[Mapping[str, int]]]
    clock: Callable[[], float]
    observe: Callable[[str, ModelId, EngineId, Failure | None], None]
    emptied: Callable[[ModelId], None] = lambda model: None
    again: Callable[[ModelId, Plan, Failure], bool] = lambda model, plan, failure: False
    allowed: Callable[[Plan], int | None] = lambda plan: None


@dataclass(frozen=True)
class PoolLimits:
    """The limits of the pool, in seconds.

    Attributes:
        room: how long the memory of an ended engine may take to show as free; drivers need up to a few.
        room_poll: between two looks for it.
        probe: between two questions whether a ready engine is alive.
        hung: an engine that neither answers nor works for so long is ended.
        growth: how far an engine may grow beyond what it held at first; a share of that.
    """

    room: float = 5.0
    room_poll: float = 0.2
    probe: float = 10.0
    hung: float = 30.0
    growth: float = 0.5


class EngineRunner:
    """Runs engines for the pool, each from its preparation to its end.

    Args:
        edges, limits: the pool's.
        tell: takes an event to the scheduler.
        changed: called when something shown of an engine has changed that is no event.
    """

    def __init__(
        self, edges: PoolEdges, limits: PoolLimits, tell: Callable[[Event], None], changed: Callable[[], None]
    ) -> None:
        self._edges = edges
        self._limits = limits
        self._tell = tell
        self._changed = changed

    async def live(self, running: Running) -> Failure | None:
        """Prepare, start, watch and stop one engine; it ends by itself or because `stop` is set.

        Returns why it ended; None where it was told to.
        """
        work = asyncio.ensure_future(self._start_and_watch(running))
        told = asyncio.ensure_future(running.stop.wait())
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            work.cancel()
        failure = await ended_by(work)
        if running.engine is not None:
            try:
                if running.park:
                    await running.engine.park()
            finally:
                await running.engine.stop()
        self._edges.observe("engine_gone", running.model, running.number, failure)
        return failure

    def again(self, running: Running, failure: Failure | None) -> bool:
        """Return whether a load that failed is to be tried in another way."""
        if failure is None or running.ready is not None or running.stop.is_set():
            return False
        return self._plan_again(running, failure)

    async def _start_and_watch(self, running: Running) -> Failure:
        engine = running.engine or await self._start(running)
        probing = asyncio.ensure_future(self._probe(running, engine))
        try:
            ends: set[asyncio.Future[Any]] = {engine.exit, engine.broken}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not engine.exit.done():
                self._broken(running, engine)
            how = await engine.exit
        finally:
            probing.cancel()
        if running.broken is not None:
            return running.broken
        return Failure("engine_lost", f"The engine of '{running.model}' ended by itself: {how}.", engine.tail(20))

    async def _start(self, running: Running) -> PooledEngine:
        running.engine = engine = await self._edges.prepare(running.model, running.plan)
        self._tell(EngineSpawned(running.number))
        running.ready = await engine.start(lambda progress: self._progressed(running, progress))
        running.ready_at = self._edges.clock()
        self._edges.observe("engine_ready", running.model, running.number, None)
        self._tell(EngineBecameReady(running.number, running.ready.n_slots))
        return engine

    async def _probe(self, running: Running, engine: PooledEngine) -> None:
        """Ask the engine again and again whether it is alive; tell when it is not."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.probe):
                    await running.doubt.wait()
            running.doubt.clear()
            if await engine.alive(self._limits.hung):
                self._weigh(running, engine)
                continue
            message = f"The engine of '{running.model}' did not answer for {self._limits.hung:g} s and was ended."
            failure = Failure("engine_hung", message, engine.tail(20))
            self._edges.observe("engine_hung", running.model, running.number, failure)
            running.hung = not running.stop.is_set()
            self._tell(EngineHung(running.number, failure))
            return

    def _broken(self, running: Running, engine: PooledEngine) -> None:
        """Have an engine ended whose device has failed; if memory lacked, the next is planned with more kept free."""
        failure = _of_break(running, engine.broken.result(), engine.tail(20))
        self._edges.observe("engine_broken", running.model, running.number, failure)
        if running.stop.is_set():
            return
        running.broken = failure
        if failure.code == OUT_OF_MEMORY:
            self._plan_again(running, failure)
        self._tell(EngineHung(running.number, failure))

    def _plan_again(self, running: Running, failure: Failure) -> bool:
        try:
            return self._edges.again(running.model, running.plan, failure)
        except Exception as error:  # noqa: BLE001 - a failure is told of, whatever else fails
            self._edges.observe("again_failed", running.model, running.number, _internal(error))
            return False

    def _weigh(self, running: Running, engine: PooledEngine) -> None:
        """Tell when an engine holds far more memory than planned."""
        allowed = None if running.outgrown else self._edges.allowed(running.plan)
        held = None if allowed is None else engine.memory()
        if held is None or allowed is None:
            return
        running.first_bytes = running.first_bytes or held
        if outgrown(held, allowed, running.first_bytes, self._limits.growth):
            running.outgrown = True
            message = (
                f"The engine of '{running.model}' holds {held >> 20} MiB of the host's memory, more than the "
                f"{allowed >> 20} MiB it was allowed; it starts anew when it is idle."
            )
            self._edges.observe("engine_outgrown", running.model, running.number, Failure("engine_outgrown", message))
            self._tell(EngineOutgrown(running.number))

    def _progressed(self, running: Running, progress: LoadProgress) -> None:
        running.progress = progress
        self._changed()


async def ended_by(work: Awaitable[Failure | None]) -> Failure | None:
    """Return the failure of the work; None where it succeeded, or was cancelled."""
    try:
        return await work
    except asyncio.CancelledError:
        return None
    except SupervisorError as error:
        return failure_of(error)
    except OSError as error:
        return Failure("engine_start_failed", f"The engine could not be started: {error}.")
    except Exception as error:  # noqa: BLE001 - a bug in one engine's life must not take the other engines down
        return _internal(error)


def harmless(told: Callable[P, None]) -> Callable[P, None]:
    """Return the function without its exceptions: a log that cannot be written must not stop a command."""

    def heard(*args: P.args, **kwargs: P.kwargs) -> None:
        with contextlib.suppress(Exception):
            told(*args, **kwargs)

    return heard


def _of_break(running: Running, cause: Cause, said: tuple[str, ...]) -> Failure:
    """Return the failure of an engine whose device failed under its answers."""
    devices = [name for name in running.plan.used_bytes if name != HOST]
    if cause.code == OUT_OF_MEMORY and cause.device is None and len(devices) == 1:
        cause = shortage(devices[0], cause.lacking)
    when = f"while the engine of '{running.model}' was answering; another one takes its place"
    message = f"{cause.what}, {when}. {CODES[cause.code]}"
    return Failure(cause.code, message, telling_lines(said), device=cause.device, lacking=cause.lacking)


def _internal(error: Exception) -> Failure:
    trace = "".join(traceback.format_exception(error)).splitlines()
    return Failure("internal_error", f"Internal error in the life of the engine: {error!r}.", tuple(trace[-12:]))
