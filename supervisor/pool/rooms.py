"""Read models and look at the machine before engines start: what `CheckRoom` orders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from supervisor.core.schedule.events import CheckRoom, EngineId, Event, RoomSeen
from supervisor.pool.life import PoolEdges, PoolLimits, ended_by
from supervisor.pool.living import Living


class RoomChecks:
    """Those of one pool.

    Args:
        edges, limits: the pool's.
        tell: takes an event to the scheduler.
        living: the engines that there are.
    """

    def __init__(self, edges: PoolEdges, limits: PoolLimits, tell: Callable[[Event], None], living: Living) -> None:
        self._edges = edges
        self._limits = limits
        self._tell = tell
        self._living = living
        self._tasks: dict[EngineId, tuple[CheckRoom, asyncio.Task[None]]] = {}
        self._put_off: set[EngineId] = set()
        self._look: asyncio.Future[Mapping[str, int]] | None = None

    @property
    def busy(self) -> bool:
        """True while something is read or looked at."""
        return any(not task.done() for _, task in self._tasks.values())

    def begin(self, check: CheckRoom, tasks: asyncio.TaskGroup) -> None:
        """Begin one; the outcome is told as RoomSeen."""
        self._put_off.discard(check.engine)
        self._tasks[check.engine] = check, tasks.create_task(self._check(check), name=f"room-{check.engine}")

    def of(self, engines: set[EngineId]) -> list[asyncio.Task[None]]:
        """Return the tasks of these engines."""
        return [task for engine, (_, task) in self._tasks.items() if engine in engines]

    def call_off(self, lives: Callable[[EngineId], bool]) -> None:
        """Cancel what is read or downloaded for engines that nobody wants any more."""
        for engine, (_, task) in list(self._tasks.items()):
            if task.done():
                del self._tasks[engine]
            elif not lives(engine) and task is not asyncio.current_task():
                del self._tasks[engine]
                task.cancel()

    def put_off(self) -> list[CheckRoom]:
        """Cancel all, and return them, as they are to begin anew. Nothing is told of them."""
        found = [check for check, task in self._tasks.values() if not task.done()]
        for check in found:
            self._put_off.add(check.engine)
            self._tasks[check.engine][1].cancel()
        return found

    def close(self) -> None:
        """Cancel all."""
        for _, task in self._tasks.values():
            task.cancel()
        if self._look is not None:
            self._look.cancel()

    async def _check(self, check: CheckRoom) -> None:
        """Read the model and look at the machine, until ended engines' memory is free or it has taken too long."""
        failure = await ended_by(self._read_and_look(check))
        if check.engine not in self._put_off:
            self._tell(RoomSeen(check.engine, failure))

    async def _read_and_look(self, check: CheckRoom) -> None:
        await self._edges.fetch_and_read(check.model, self._living)
        patience = self._edges.clock() + self._limits.room
        while True:
            free = await self._look_once()
            if all(free.get(device, size) >= size for device, size in check.vacated.items()):
                return
            if self._edges.clock() >= patience:
                self._edges.observe("room_not_seen", check.model, check.engine, None)
                return
            await asyncio.sleep(self._limits.room_poll)

    async def _look_once(self) -> Mapping[str, int]:
        """Look at the machine; one look at a time serves everybody."""
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(self._edges.see_room(self._living))
        return await asyncio.shield(self._look)
