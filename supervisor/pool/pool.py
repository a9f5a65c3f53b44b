"""Own all engines: tell the scheduler what happened, and do what it orders.

`_apply` is a plain function: no await lies between reading and writing the scheduler's state, so there is no lock.
Every outcome of a command comes back as an event, and so does the time that the scheduler waits for.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeAlias

from supervisor.core.devices import Holding
from supervisor.core.plan import Resident
from supervisor.core.schedule import Scheduler
from supervisor.core.schedule.events import (
    CheckRoom,
    Command,
    EngineAdopted,
    EngineGone,
    Event,
    GrantLease,
    LaunchChanged,
    LoadAsked,
    ModelId,
    PolicyChanged,
    RefuseRequest,
    RequestArrived,
    RequestDone,
    RequestId,
    ShutdownAsked,
    StartEngine,
    StopEngine,
    TimePassed,
    UnloadAsked,
)
from supervisor.core.schedule.lifecycle import LEAVING, STARTING
from supervisor.core.takeover.carried import CarriedEngine
from supervisor.core.takeover.lending import Lending
from supervisor.engines.client import EngineClient
from supervisor.pool.carrying import Adopted, Decider, carried_engine, lent_engine
from supervisor.pool.changes import Changes
from supervisor.pool.lease import EngineStatus, Lease, PooledEngine, PoolStatus, Running, error_of
from supervisor.pool.life import EngineRunner, PoolEdges, PoolLimits, ended_by, harmless
from supervisor.pool.rooms import RoomChecks
from supervisor.pool.roster import Roster

__all__ = ["Lease", "Pool", "PoolEdges", "PoolLimits", "PoolStatus", "error_of"]

_MOVING = STARTING | LEAVING

P = ParamSpec("P")

Wait: TypeAlias = Callable[["asyncio.Future[Lease]"], Awaitable[Lease]]


class Pool:
    """The runner of the scheduler's commands. Use it as an async context manager; leaving it ends every engine.

    Args:
        changes: is told of every change of an engine or a queue; None: one that nobody else tells anything.

    Attributes:
        roster: the engines that have a process.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        edges: PoolEdges,
        limits: PoolLimits | None = None,
        changes: Changes | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._decider: Decider = scheduler
        self._held: list[Command] | None = None  # commands that wait while engines are neither started nor ended
        self._edges = edges = replace(edges, observe=self._ours(edges.observe), emptied=self._ours(edges.emptied))
        self._changes = changes or Changes()
        self._limits = limits or PoolLimits()
        self.roster = Roster()
        self._running = self.roster.engines
        self._waiters: dict[RequestId, asyncio.Future[Lease]] = {}
        self._request_ids = itertools.count(1)
        self._tasks = asyncio.TaskGroup()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for: float | None = None
        self._runner = EngineRunner(edges, self._limits, self._apply, self.changed)
        self._rooms = RoomChecks(edges, self._limits, self._apply, self)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._apply(ShutdownAsked(now=True))
        self._rooms.close()
        await self._tasks.__aexit__(None, None, None)  # the tasks of the engines end by themselves, stopped
        if self._timer is not None:
            self._timer.cancel()

    # ── what others ask ──────────────────────────────────────────────────────────────────────────────────────────

    def number(self) -> RequestId:
        """Return the number of a request that is to come."""
        return next(self._request_ids)

    async def acquire(
        self,
        model: ModelId,
        affinity: str | None = None,
        wait: Wait | None = None,
        request: RequestId | None = None,
    ) -> Lease:
        """Wait for an engine of the model, loading it if needed; requests with one `affinity` prefer one engine.

        `wait` waits in place of us where there is something to wait for; it raises what the future does, else nothing.
        Raises ModelLoadFailed with the reason, LoadCancelled, CrashLoop, ModelDoesNotFit, QueueFull, ShuttingDown.
        """
        request = self.number() if request is None else request
        waiter: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiters[request] = waiter
        try:
            self._apply(RequestArrived(request, model, affinity))
            return await (waiter if wait is None or waiter.done() else wait(waiter))
        except BaseException:  # whatever it is, nobody will use the lease
            self._waiters.pop(request, None)
            self._apply(RequestDone(request))  # waiting, just granted or refused: the scheduler knows
            raise

    def ask_load(self, model: ModelId, *, fresh: bool = False) -> None:
        """Ask for the model to be loaded, and return at once.

        `fresh`: in place of the engines there are, after their requests.
        """
        self._apply(LoadAsked(model, fresh))

    def ask_unload(self, model: ModelId, *, now: bool = False, serves_waiting: bool = False) -> None:
        """Ask for the model to be unloaded, after its requests or `now`, and return at once.

        serves_waiting: those that wait for it are of its requests, too; else they are refused.
        """
        self._apply(UnloadAsked(model, now, serves_waiting))

    def launch_changed(self, model: ModelId) -> None:
        """End the model's engines after their requests and start them anew; return at once."""
        self._apply(LaunchChanged(model))

    def policies_changed(self) -> None:
        """Tell the scheduler that the settings of models have changed."""
        self._apply(PolicyChanged())

    def is_coming(self, model: ModelId) -> bool:
        """Return whether the model has no engine that is ready, and one that comes up."""
        return self._scheduler.view(model).state in STARTING

    async def at_rest(self, model: ModelId) -> PoolStatus:
        """Return the model's status once its engine neither comes up nor goes away."""
        return await self._first(model, lambda status: status.view.state not in _MOVING)

    async def unload(self, model: ModelId, *, now: bool = False) -> PoolStatus:
        """End the model's engines, after their requests or `now`; return when their processes are gone.

        Those of downloads that are called off by it, too.
        """
        engines = {engine.engine for engine in self._scheduler.view(model).engines}
        checks = self._rooms.of(engines)
        self.ask_unload(model, now=now)
        status = await self._first(model, lambda _: engines.isdisjoint(self._running))
        if called_off := [task for task in checks if task.cancelling()]:
            await asyncio.wait(called_off)
        return status

    def ready_clients(self) -> Iterator[tuple[ModelId, EngineClient]]:
        """Yield a ready engine's client of every model that has one."""
        for model in {running.model for running in self._running.values()}:
            if (client := self.ready_client(model)) is not None:
                yield model, client

    def ready_client(self, model: ModelId) -> EngineClient | None:
        """Return a ready engine's client, for requests that neither wake nor keep it; None where there is none."""
        ready = (
            running.engine.client
            for running in self._running.values()
            if running.model == model and running.ready is not None and running.engine and not running.stop.is_set()
        )
        return next(ready, None)

    def forget(self, model: ModelId) -> None:
        """Drop a model that has no engine and that nobody will ask for again."""
        self._scheduler.forget(model)

    def probe(self) -> None:
        """Ask every engine at once whether it lives, and see what time has done, trusting nothing. Does not wait."""
        for running in self._running.values():
            running.doubt.set()
        self._apply(TimePassed())

    def shut_down(self) -> None:
        """Refuse everything from now on; end engines after their requests, the second time at once. Does not wait."""
        self._apply(ShutdownAsked())

    async def drained(self) -> None:
        """Wait until no engine lives."""
        with self.watch() as changed:
            while self._running:
                await changed.wait()
                changed.clear()

    def watch(self) -> AbstractContextManager[asyncio.Event]:
        """Yield an event that is set on every change of any engine or queue; whoever waits clears it."""
        return self._changes.watch()

    def changed(self) -> None:
        """Let those who follow a model look again."""
        self._changes.tell()

    async def follow(self, model: ModelId) -> AsyncGenerator[PoolStatus]:
        """Yield the model's status now and after every change, the newest only."""
        with self.watch() as changed:
            while True:
                yield self.status(model)
                await changed.wait()
                changed.clear()

    async def _first(self, model: ModelId, wanted: Callable[[PoolStatus], bool]) -> PoolStatus:
        async with aclosing(self.follow(model)) as changes:
            return await anext(status async for status in changes if wanted(status))

    def status(self, model: ModelId) -> PoolStatus:
        """Return the model's status now."""
        view = self._scheduler.view(model)
        return PoolStatus(view, tuple(EngineStatus.of(one, self._running.get(one.engine)) for one in view.engines))

    def residents(self) -> tuple[Resident, ...]:
        """Return the engines there are, as the planner sees them."""
        return self._scheduler.residents(self._edges.clock())

    def loaded(self) -> frozenset[ModelId]:
        """Return the models that have an engine."""
        return frozenset(one.model for one in self.residents())

    def holdings(self) -> tuple[Holding, ...]:
        """Return the planned memory of every engine that has a process."""
        return tuple(
            Holding(running.engine.pid, running.plan.used_bytes)
            for running in self._running.values()
            if running.engine is not None and running.engine.pid is not None
        )

    # ── when another process takes over ──────────────────────────────────────────────────────────────────────────

    def hold(self) -> None:
        """Start and end no engine from now on; requests get those that are ready. What is read is called off."""
        self._held = [*self._rooms.put_off()]

    def go_on(self) -> None:
        """Do what was held back, as nobody takes over."""
        held, self._held = self._held or [], None
        for command in held:
            if isinstance(command, GrantLease | RefuseRequest) or self._scheduler.lives(command.engine):
                self._execute(command)
        self._apply(TimePassed())

    async def settled(self) -> None:
        """Wait until no engine comes up or goes away, and nothing is read for one."""
        with self.watch() as changed:
            while self.roster.moving or self._rooms.busy:
                await changed.wait()
                changed.clear()

    def handed_over(self, others: set[RequestId]) -> tuple[list[CarriedEngine], Lending]:
        """Return the engines, as they are carried, and who lends their slots meanwhile. Raises OSError.

        others: requests that are not of this process.
        """
        found = [(one, self._running[one.id]) for one in self._scheduler.engines() if one.id in self._running]
        slots = {view.engine: view.slots for one, _ in found for view in self._scheduler.view(one.model.id).engines}
        lent = [lent_engine(one, slots[one.id], others) for one, _ in found]
        waiting = [one for one in self._scheduler.waiting() if one[0] not in others]
        return [carried_engine(*pair) for pair in found], Lending(lent, waiting)

    def give_back(self, request: RequestId) -> None:
        """Take the lease back of a request of another process."""
        self._apply(RequestDone(request))

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, for what is carried of it."""
        return self._scheduler

    def lend(self, decider: Decider) -> None:
        """In a copy of the process: own no engine any more, and have somebody else decide who gets one."""
        self._decider = decider
        self.roster.disown()
        self._set_timer()

    def carry_out(self, command: GrantLease | RefuseRequest) -> bool:
        """Carry out what another process has decided; return whether the request still waits."""
        waits = command.request in self._waiters
        if waits:
            self._execute(command)
        return waits

    def adopt(self, event: EngineAdopted, engine: PooledEngine, adopted: Adopted) -> None:
        """Take in an engine that an earlier image of this process has started."""
        running = Running(event.engine, event.model, event.plan, adopted.asked_at, engine=engine, ready=adopted.ready)
        running.ready_at, running.first_bytes = event.ready_at, adopted.first_bytes
        running.outgrown = adopted.outgrown
        self._running[event.engine] = running
        self._tasks.create_task(self._live(running), name=f"engine-{event.engine}")
        self._edges.observe("engine_adopted", event.model, event.engine, None)
        self._apply(event)

    def _ours(self, told: Callable[P, None]) -> Callable[P, None]:
        """Return the function without its exceptions, and without effect while the engines are another process's."""
        heard = harmless(told)

        def if_ours(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._decider is self._scheduler:
                heard(*args, **kwargs)

        return if_ours

    # ── events in, commands out ──────────────────────────────────────────────────────────────────────────────────

    def _apply(self, event: Event) -> None:
        for command in self._decider.handle(event, self._edges.clock()):
            if self._held is None or isinstance(command, GrantLease | RefuseRequest):
                self._execute(command)
            else:
                self._held.append(command)
        self._set_timer()
        self._rooms.call_off(self._scheduler.lives)
        self.changed()

    def _execute(self, command: Command) -> None:
        match command:
            case CheckRoom():
                self._rooms.begin(command, self._tasks)
            case StartEngine(engine, model, plan):
                self._running[engine] = Running(engine, model, plan, self._edges.clock())
                self._tasks.create_task(self._live(self._running[engine]), name=f"engine-{engine}")
                self._edges.observe("engine_start", model, engine, None)
            case StopEngine(engine, now, idle):
                running = self._running[engine]
                self._edges.observe("engine_stop", running.model, engine, None)
                running.stop.set()
                running.park = idle
                if now and running.engine is not None:
                    running.engine.kill()
            case GrantLease(request, engine):
                waiter = self._waiters.pop(request)
                if not waiter.done():  # a cancelled one reports RequestDone itself, in acquire()
                    waiter.set_result(Lease(self._running[engine], partial(self._apply, RequestDone(request))))
            case RefuseRequest(request, failure):
                waiter = self._waiters.pop(request)
                if not waiter.done():
                    waiter.set_exception(error_of(failure))

    async def _live(self, running: Running) -> None:
        """Live through an engine's life, and give its room back, whatever becomes of it."""
        failure, again = None, False
        try:
            failure = await ended_by(self._runner.live(running))
            if self._decider is not self._scheduler:  # it is another process's engine
                return
            if failure is None and len(self._scheduler.view(running.model).engines) == 1:
                self._edges.emptied(running.model)
            again = self._runner.again(running, failure)
        finally:
            del self._running[running.number]
            self._apply(EngineGone(running.number, failure, again=again))
            running.gone.set()

    def _set_timer(self) -> None:
        wake = self._decider.next_wake
        if wake == self._timer_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_for = None, wake
        if wake is not None:
            delay = max(0.0, wake - self._edges.clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._time_passed)

    def _time_passed(self) -> None:
        self._timer_for = None  # so that a timer that came too early is set again
        self._apply(TimePassed())
