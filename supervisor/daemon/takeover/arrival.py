"""Take over from the image before: its engines become ours where they are provably the ones that were handed over.

An engine that is not is ended and loaded again. One whose command would be another one now, by a changed configuration
or program, goes on until its requests have ended, and is then started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from supervisor.core.engine_output.footprint import unasked
from supervisor.core.models.registry import launch_digest
from supervisor.core.schedule.events import EngineAdopted, ModelId
from supervisor.core.takeover.carried import Carried, CarriedCopy, CarriedEngine, HeldProcess, NotCarried, decode
from supervisor.daemon.build import Engines
from supervisor.daemon.takeover.departure import CARRIED
from supervisor.daemon.takeover.guests import Guest, Guests
from supervisor.engines.engine import Engine
from supervisor.errors import SupervisorError
from supervisor.pool.carrying import adopted_of
from supervisor.system import processes
from supervisor.system.adopted import NotOurs, check_ours

_log = structlog.get_logger()

_MOST: Final = 1 << 28  # bytes of what is carried


def carried_to(env: MutableMapping[str, str]) -> Carried | None:
    """Return what the image before has handed over, if there was one. It is read once."""
    number = env.pop(CARRIED, "")
    if not number.isdigit():
        return None
    try:
        with os.fdopen(int(number), "rb") as memory:
            found = decode(memory.read(_MOST))
    except (OSError, NotCarried) as error:
        _log.error("takeover_unreadable", reason=str(error))
        return None
    for one in _descriptors(found):
        with contextlib.suppress(OSError):
            os.set_inheritable(one, False)
    return found


def processes_of(carried: Carried | None) -> frozenset[int]:
    """Return the processes that are no leftovers, as they are to be adopted."""
    if carried is None:
        return frozenset()
    others = (one.pid for one in (carried.gateway, carried.nats) if one is not None)
    return frozenset((*(one.process.pid for one in carried.engines), *others))


@dataclass
class _Adopted:
    engine: Engine
    carried: CarriedEngine
    changed: bool


@dataclass
class Arrival:
    """One take-over, seen from its end."""

    carried: Carried
    engines: Engines
    guests: Guests
    again: list[ModelId] = field(default_factory=list)

    async def take(self, known: Iterable[ModelId]) -> None:
        """Take over engines and requests; return when clients may be let in.

        known: models that were loaded before, and are in the catalogue.
        """
        carried, pool = self.carried, self.engines.pool
        pool.scheduler.restore(carried.schedule)
        self.engines.pins.restore(carried.pins.pinned, carried.pins.ttl)
        await self.engines.parts.lookout.see_room(pool)
        made = [one for engine in carried.engines if (one := await self._make(engine)) is not None]
        for process, model, reason in carried.lost:
            await self._end(process, model, reason)
        *before, _ = carried.copies
        olds = [(self.guests.add(copy), copy) for copy in before]
        newest = self.guests.add(carried.copies[-1])
        self.guests.begin(newest)
        await self.guests.told(newest)
        found = [one for one in made if await self._adopt(one, newest)]
        self._go_on(found, olds, newest)
        wanted = {one.id for one in carried.schedule.models if one.wanted} | set(self.again)
        for model in known:
            if model in wanted:
                pool.ask_load(model)

    def _go_on(self, found: list[_Adopted], olds: list[tuple[Guest, CarriedCopy]], newest: Guest) -> None:
        """Have the pool go on, in one step: no engine is idle before all who use it are known."""
        for one in found:
            carried = one.carried
            event = EngineAdopted(
                engine=carried.number,
                model=carried.model,
                plan=carried.place,
                slots=carried.slots,
                ready_at=carried.ready_at,
                idle_since=carried.idle_since,
                leases=self.guests.leases_of(carried.number),
                worn=carried.worn,
                leaving=carried.leaving,
            )
            self.engines.pool.adopt(event, one.engine, adopted_of(carried))
        for guest, copy in olds:
            self.guests.admit(guest, copy.waiting)
            self.guests.begin(guest)
        self.guests.settle(newest)
        for one in found:
            if one.changed:
                _log.info("launch_changed", model=one.carried.model)
                self.engines.pool.launch_changed(one.carried.model)

    async def _make(self, carried: CarriedEngine) -> _Adopted | None:
        """Return what adopts an engine; None where it cannot be adopted, and is ended."""
        try:
            check_ours(carried.process.pid, carried.process.create_time)
            return await self._made(carried)
        except (SupervisorError, NotOurs, NotCarried, OSError) as error:
            await self._end(carried.process, carried.model, str(error))
            return None

    async def _adopt(self, one: _Adopted, newest: Guest) -> bool:
        """Adopt it, and return True; or end it."""
        carried = one.carried
        unread = newest.unread.get(carried.number, carried.process.unread)
        try:
            held = replace(carried.process, unread=unread)
            notes = frozenset(carried.notes)
            said = [(line, number in notes) for number, line in enumerate(carried.said)]
            await one.engine.adopt(held, carried.argv, carried.info, said)
        except (NotOurs, OSError) as error:
            await self._end(carried.process, carried.model, str(error))
            return False
        return True

    async def _made(self, carried: CarriedEngine) -> _Adopted:
        parts, planner = self.engines.parts, self.engines.planner
        entry = parts.registry.find(carried.model)
        await planner.fetch_and_read(entry.id, self.engines.pool)
        read = planner.known(entry.id)
        kind = self.engines.launchings.of(read.entry)
        engine = await kind.prepare(read, parts.lookout.sight, carried.place, carried.address)
        same = unasked(engine.argv) == unasked(carried.argv) and launch_digest(entry) == carried.launch
        return _Adopted(engine, carried, changed=not same)

    async def _end(self, process: HeldProcess, model: ModelId, reason: str) -> None:
        """End a process that is not adopted, and have its model loaded again."""
        _log.warning("engine_not_adopted", model=model, pid=process.pid, reason=reason)
        for one in process.pipes:
            with contextlib.suppress(OSError):
                os.close(one)
        if processes.parent(process.pid) == os.getpid():
            processes.signal_session(process.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                await asyncio.to_thread(os.waitpid, process.pid, 0)
        self.again.append(model)


def _descriptors(carried: Carried) -> list[int]:
    pipes = [one for engine in carried.engines for one in engine.process.pipes]
    lost = [one for process, _, _ in carried.lost for one in process.pipes]
    return [
        *([] if carried.lock is None else [carried.lock]),
        *(one.descriptor for one in carried.listeners),
        *(one.channel for one in carried.copies),
        *pipes,
        *lost,
        *(() if carried.gateway is None else carried.gateway.pipes),
        *(() if carried.nats is None else carried.nats.pipes),
    ]


@dataclass
class Listening:
    """Sockets that listen already.

    Attributes:
        passed: that of the service manager.
        others: by their addresses in the configuration.
    """

    passed: socket.socket | None = None
    others: dict[tuple[str, int], socket.socket] = field(default_factory=dict)

    def take(self, host: str, port: int) -> socket.socket | None:
        """Return the one at this address, which belongs to the caller then."""
        return self.others.pop((host, port), None)

    def close(self) -> None:
        """Close those that nobody has taken."""
        for one in self.others.values():
            one.close()
        self.others.clear()


def listeners_of(carried: Carried | None) -> Listening:
    """Return the sockets that were handed over."""
    found = Listening()
    for one in () if carried is None else carried.listeners:
        listener = socket.socket(fileno=one.descriptor)
        if one.passed:
            found.passed = listener
        else:
            found.others[one.host, one.port] = listener
    return found
