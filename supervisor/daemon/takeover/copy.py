"""The copy of a daemon that is being taken over: it finishes what its clients have begun, and ends.

Until the next image is ready it goes on letting clients in and lending slots, so that nobody waits for that. Then it
asks the next image for slots, as its scheduler alone decides, and gives it every connection that has become idle.
It starts and ends no engine, and writes to no store.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Never

import msgspec

from supervisor.core.history.records import Finished as Record
from supervisor.core.plan import Seat
from supervisor.core.routes import is_relayed
from supervisor.core.schedule.events import (
    Command,
    Event,
    GrantLease,
    RefuseRequest,
    RequestArrived,
    RequestDone,
)
from supervisor.core.takeover.carried import Address
from supervisor.core.takeover.messages import (
    Alive,
    Began,
    Broken,
    Done,
    Finished,
    Gone,
    Granted,
    Has,
    Idle,
    Ready,
    Refused,
    ToCopy,
    Told,
    Took,
    Unread,
    Wants,
)
from supervisor.daemon.build import Daemon, Engines, World
from supervisor.daemon.server import Server
from supervisor.daemon.takeover.channel import Channel
from supervisor.daemon.takeover.departure import Leaving
from supervisor.daemon.takeover.elsewhere import ElsewhereEngine
from supervisor.proxy.connections import Connection
from supervisor.proxy.server import RelayingProtocol
from supervisor.system.child import ExitStatus

_TO_COPY: type[ToCopy] = ToCopy  # type: ignore[assignment]  # a union is a type to msgspec, and none to a checker
_GRACE_S = 1.0  # for calls of management that are under way
_FLUSH_S = 5.0
_LOOK_S = 0.2
_MOST_UNREAD = 1 << 14  # bytes of a line
_MOST_SAID = 1000  # characters of an engine's error
_ALIVE_S = 5.0


class Asking:
    """Stands in for the scheduler: asks the one of the next image."""

    next_wake: float | None = None

    def __init__(self, channel: Channel[ToCopy]) -> None:
        self._channel = channel

    def handle(self, event: Event, now: float) -> list[Command]:
        """Tell what concerns requests; the answers come by themselves."""
        match event:
            case RequestArrived(request, model, affinity):
                self._channel.send(Wants(request, model, affinity))
            case RequestDone(request):
                self._channel.send(Done(request))
            case _:
                pass
        return []


class Copy:
    """The life of the copy."""

    def __init__(self, world: World, engines: Engines, daemon: Daemon, server: Server, leaving: Leaving) -> None:
        self._world = world
        self._engines = engines
        self._daemon = daemon
        self._server = server
        self._lending = leaving.lending
        self._channel: Channel[ToCopy] = Channel(leaving.channel, _TO_COPY)
        self._began = asyncio.Event()
        self._cut = asyncio.Event()
        self._said_at = 0.0

    async def live(self) -> Never:
        """Finish what has begun; the process ends with that."""
        loop = asyncio.get_running_loop()
        if self._world.door.lock is not None:
            os.close(self._world.door.lock)
        self._daemon.guard.leave()
        self._engines.records.send(self._finished)
        self._engines.pool.lend(self._lending)
        self._engines.workers.disown()
        if self._daemon.cluster is not None:
            self._daemon.cluster.disown()
        self._channel.start(self._hear, self._cut.set)
        await _first(self._began, self._cut)
        if self._began.is_set():
            loop.call_later(_GRACE_S, self._end_calls)
            while self._server.server_state.connections and not self._cut.is_set():
                self._say_alive(loop.time())
                await _first(self._cut, within=_LOOK_S)
        until = loop.time() + _FLUSH_S  # for what is to be said yet
        while (self._server.server_state.connections or not self._channel.empty) and loop.time() < until:
            await _first(asyncio.Event(), within=_LOOK_S / 10)
        os._exit(0)

    def _say_alive(self, now: float) -> None:
        if now >= self._said_at + _ALIVE_S:
            self._said_at = now
            self._channel.send(Alive())

    def _hear(self, message: ToCopy, came: socket.socket | None) -> None:
        pool = self._engines.pool
        match message:
            case Ready():
                self._step_back()
            case Began():
                self._daemon.takeover.over()
            case Granted(request, number, model, address):
                pool.roster.borrow(number, model, Seat(model, {}), self._elsewhere(number, address))
                if not pool.carry_out(GrantLease(request, number)):
                    self._channel.send(Done(request))
            case Refused(request, failure):
                pool.carry_out(RefuseRequest(request, failure))
            case Gone(number, told, failure, how):
                pool.roster.gone(number, ExitStatus(*how), failure, told=told)

    def _step_back(self) -> None:
        """Let nobody in any more, and tell who has what; the next image decides from here on."""
        for one in self._server.servers:
            one.close()
        self._channel.send(Took())
        for request, engine in self._lending.leases:
            self._channel.send(Has(request, engine))
        for number, unread in self._engines.pool.roster.let_go().items():
            self._channel.send(Unread(number, *(text[-_MOST_UNREAD:] for text in unread)))
        for request, model, affinity in self._lending.waiting:
            self._channel.send(Wants(request, model, affinity))
        self._channel.send(Told())
        self._engines.pool.lend(Asking(self._channel))
        self._daemon.connections.leave_to(self._pass_on)
        self._daemon.feed.close()
        self._engines.logs.close()
        self._world.own_log.close()
        self._began.set()

    def _pass_on(self, one: Connection) -> None:
        asyncio.get_running_loop().call_soon(self._part_from, one)

    def _part_from(self, one: Connection) -> None:
        if (client := one.part()) is not None:
            self._channel.send(Idle(), client)

    def _elsewhere(self, number: int, address: Address) -> ElsewhereEngine:
        return ElsewhereEngine(address, lambda message: self._channel.send(Broken(number, message[:_MOST_SAID])))

    def _finished(self, record: Record) -> None:
        self._channel.send(Finished(msgspec.Raw(msgspec.json.encode(record))))

    def _end_calls(self) -> None:
        """End what is no request for an engine: nothing here changes any more that it could wait for."""
        for one in tuple(self._server.server_state.connections):
            if isinstance(one, RelayingProtocol):
                one.call_off(is_relayed)


async def _first(*events: asyncio.Event, within: float | None = None) -> None:
    waits = [asyncio.ensure_future(one.wait()) for one in events]
    await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    for one in waits:
        one.cancel()
