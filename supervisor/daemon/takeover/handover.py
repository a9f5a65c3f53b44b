"""Both ends of a take-over, for the daemon that runs: how it has come to its engines, and how it leaves them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from supervisor.core.history.records import Finished
from supervisor.core.schedule.events import ModelId
from supervisor.core.takeover.carried import Carried, HeldProcess
from supervisor.daemon.build import Daemon, World
from supervisor.daemon.server import Server, Stop
from supervisor.daemon.takeover.arrival import Arrival
from supervisor.daemon.takeover.copy import Copy
from supervisor.daemon.takeover.departure import Ours, depart
from supervisor.daemon.takeover.guests import Guests
from supervisor.errors import SupervisorError
from supervisor.system.servicemanager import ServiceManager


class Handover:
    """That of one daemon."""

    def __init__(self, world: World, daemon: Daemon, server: Server, stop: Stop, manager: ServiceManager) -> None:
        self._world = world
        self._stop = stop
        self._daemon = daemon
        self._server = server
        self._manager = manager
        engines = daemon.engines
        self._guests = Guests(engines.pool, self._record, server.accept)
        engines.listeners.append(self._guests.heard)
        self._watching: asyncio.Task[None] | None = None

    async def arrive(self, carried: Carried, known: Iterable[ModelId]) -> None:
        """Take over from the image before; return when clients may be let in. known: as for `Arrival.take`."""
        engines = self._daemon.engines
        await Arrival(carried, engines, self._guests).take(known)
        self._watching = asyncio.ensure_future(self._guests.watch())
        looking = asyncio.ensure_future(engines.parts.lookout.see_room(engines.pool))
        looking.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def depart(self) -> None:
        """Have the next image take over; return where it could not, since everything goes on then."""
        daemon = self._daemon
        self._manager.reloads()
        try:
            ours = Ours(self._world, daemon.engines, self._guests, self._nats, self._stop.asked.is_set)
            leaving = await depart(ours, self._manager.inherited())
        except SupervisorError as error:
            daemon.takeover.over(error)
            return
        self._guests.leave()
        if self._watching is not None:
            self._watching.cancel()
        await Copy(self._world, daemon.engines, daemon, self._server, leaving).live()

    def _nats(self) -> HeldProcess | None:
        cluster = self._daemon.cluster
        return None if cluster is None else cluster.held()

    def _record(self, record: Finished) -> None:
        """Take in a request that a copy has answered."""
        self._daemon.engines.records.request(record)
        if record.key is not None:
            self._world.keys.spend(record.key, record.spent.prompt_tokens or 0, record.spent.completion_tokens or 0)

    async def close(self) -> None:
        """End what is left of the images before, as the daemon ends."""
        if self._watching is not None:
            self._watching.cancel()
        await self._guests.close()
