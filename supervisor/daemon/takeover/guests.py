"""The requests of copies: what clients of the daemon before had begun takes slots here, until it is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import structlog

from supervisor.core.history.records import Finished as Record
from supervisor.core.schedule.events import EngineId, Failure, ModelId, RequestId
from supervisor.core.takeover.carried import CarriedCopy
from supervisor.core.takeover.messages import (
    Alive,
    Began,
    Broken,
    Done,
    Finished,
    FromCopy,
    Gone,
    Granted,
    Has,
    Idle,
    Ready,
    Refused,
    Told,
    Took,
    Unread,
    Wants,
)
from supervisor.daemon.takeover.channel import Channel
from supervisor.errors import SupervisorError
from supervisor.pool.lease import failure_of
from supervisor.pool.pool import Pool

_log = structlog.get_logger()

_FROM_COPY: type[FromCopy] = FromCopy  # type: ignore[assignment]  # a union is a type to msgspec alone
_SILENT_S = 30.0
_END_S = 5.0  # how long a copy may take to say what it has left


@dataclass
class Guest:
    """One copy.

    Attributes:
        leases: its requests that have an engine: its number → ours, and the engine.
        waiting: its requests that wait: its number → our task, our number, model and affinity.
        wants, clients: what comes in once it is `settled`: once the pool has its engines.
        unread: what it had read of engines' lines that had not ended.
        heard_at: when it said something last.
        told: it has told all that it had when this daemon began.
    """

    pid: int
    channel: Channel[FromCopy]
    leases: dict[RequestId, tuple[RequestId, EngineId]] = field(default_factory=dict)
    waiting: dict[RequestId, tuple[asyncio.Task[None], RequestId, ModelId, str | None]] = field(default_factory=dict)
    heard_at: float = 0.0
    unread: dict[EngineId, tuple[bytes, bytes]] = field(default_factory=dict)
    wants: list[Wants] = field(default_factory=list)
    clients: list[socket.socket] = field(default_factory=list)
    settled: bool = False
    told: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Guests:
    """All copies.

    Args:
        pool: that their requests take their leases of.
        record: takes in a request that has ended.
        accept: takes in a client's connection.
    """

    def __init__(self, pool: Pool, record: Callable[[Record], None], accept: Callable[[socket.socket], None]) -> None:
        self._pool = pool
        self._record = record
        self._accept = accept
        self._guests: list[Guest] = []

    def requests(self) -> set[RequestId]:
        """Return our numbers of their requests."""
        held = {ours for guest in self._guests for ours, _ in guest.leases.values()}
        return held | {ours for guest in self._guests for _, ours, _, _ in guest.waiting.values()}

    def carried(self) -> tuple[CarriedCopy, ...]:
        """Return what the next daemon is to know of them."""
        return tuple(
            CarriedCopy(
                guest.pid,
                guest.channel.descriptor,
                tuple((theirs, engine) for theirs, (_, engine) in guest.leases.items()),
                tuple((theirs, model, affinity) for theirs, (_, _, model, affinity) in guest.waiting.items()),
            )
            for guest in self._guests
        )

    def leave(self) -> None:
        """In a copy of this process: have nothing to do with them."""
        for guest in self._guests:
            guest.channel.leave()
            for task, *_ in guest.waiting.values():
                task.cancel()
        self._guests.clear()

    def add(self, copy: CarriedCopy) -> Guest:
        """Take a copy in, with the leases that it has already."""
        channel: Channel[FromCopy] = Channel(socket.socket(fileno=copy.channel), _FROM_COPY)
        guest = Guest(copy.pid, channel)
        self._guests.append(guest)
        for theirs, engine in copy.leases:
            guest.leases[theirs] = self._pool.number(), engine
        return guest

    def begin(self, guest: Guest) -> None:
        """Listen to it."""
        guest.channel.start(lambda message, came: self._hear(guest, message, came), lambda: self._over(guest))
        guest.heard_at = asyncio.get_running_loop().time()
        asyncio.get_running_loop().add_reader(end := os.pidfd_open(guest.pid), self._reap, guest, end)

    async def told(self, guest: Guest) -> None:
        """Have it lend no more, and wait until it has said who has what."""
        guest.channel.send(Ready())
        await guest.told.wait()

    def leases_of(self, engine: EngineId) -> tuple[RequestId, ...]:
        """Return our numbers of their requests that have this engine."""
        return tuple(ours for guest in self._guests for ours, its in guest.leases.values() if its == engine)

    def admit(self, guest: Guest, waiting: tuple[tuple[RequestId, ModelId, str | None], ...]) -> None:
        """Let its requests wait here that have waited there."""
        guest.settled = True
        for theirs, model, affinity in waiting:
            self._wants(guest, Wants(theirs, model, affinity))

    def settle(self, guest: Guest) -> None:
        """Let those of its requests and clients in that have come until now; later ones come in at once."""
        guest.settled, wants, guest.wants = True, guest.wants, []
        for one in wants:
            self._wants(guest, one)
        for client in guest.clients:
            self._accept(client)
        guest.clients.clear()
        guest.channel.send(Began())

    def heard(self, event: str, model: ModelId, engine: EngineId, failure: Failure | None) -> None:
        """Tell them when an engine is no more."""
        if event != "engine_gone":
            return
        how = self._pool.roster.exit_of(engine)
        for guest in self._guests:
            guest.channel.send(Gone(engine, told=failure is None, failure=failure, how=how))

    async def watch(self) -> None:
        """End those that say nothing any more: what they hold would be held for ever. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_SILENT_S / 2)
            for guest in self._guests:
                if asyncio.get_running_loop().time() >= guest.heard_at + _SILENT_S:
                    _log.warning("copy_silent", pid=guest.pid, seconds=_SILENT_S)
                    self._kill(guest)

    def _kill(self, guest: Guest) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(guest.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End them: what they have left to say, they say now."""
        guests = list(self._guests)
        for guest in guests:
            guest.channel.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                for guest in guests:
                    await guest.ended.wait()
        for guest in guests:
            if not guest.ended.is_set():
                self._kill(guest)

    def _hear(self, guest: Guest, message: FromCopy, came: socket.socket | None) -> None:
        guest.heard_at = asyncio.get_running_loop().time()
        match message:
            case Has(theirs, engine):
                guest.leases[theirs] = self._pool.number(), engine
            case Wants():
                guest.wants.append(message) if not guest.settled else self._wants(guest, message)
            case Unread(engine, out, err):
                guest.unread[engine] = out, err
            case Told():
                guest.told.set()
            case Done(theirs):
                self._done(guest, theirs)
            case Broken(engine, said):
                self._pool.roster.note_broken(engine, said)
            case Idle() if came is not None:
                guest.clients.append(came) if not guest.settled else self._accept(came)
            case Finished(record):
                with contextlib.suppress(ValueError):
                    self._record(msgspec.json.decode(record, type=Record))
            case Took() | Alive() | Idle():
                pass

    def _wants(self, guest: Guest, wants: Wants) -> None:
        ours = self._pool.number()
        task = asyncio.ensure_future(self._wait(guest, wants, ours))
        guest.waiting[wants.request] = task, ours, wants.model, wants.affinity

    async def _wait(self, guest: Guest, wants: Wants, ours: RequestId) -> None:
        try:
            lease = await self._pool.acquire(wants.model, wants.affinity, request=ours)
        except SupervisorError as error:
            guest.waiting.pop(wants.request, None)
            guest.channel.send(Refused(wants.request, failure_of(error)))
            return
        guest.waiting.pop(wants.request, None)
        guest.leases[wants.request] = ours, lease.number
        guest.channel.send(Granted(wants.request, lease.number, lease.model, lease.client.address))

    def _done(self, guest: Guest, theirs: RequestId) -> None:
        guest.wants = [one for one in guest.wants if one.request != theirs]
        if (waits := guest.waiting.pop(theirs, None)) is not None:
            waits[0].cancel()
        if (has := guest.leases.pop(theirs, None)) is not None:
            self._pool.give_back(has[0])

    def _over(self, guest: Guest) -> None:
        """Take back all that it has: it has ended."""
        if guest in self._guests:
            self._guests.remove(guest)
        for theirs in (*guest.waiting, *guest.leases):
            self._done(guest, theirs)
        for client in guest.clients:
            client.close()
        guest.told.set()
        guest.channel.close()

    def _reap(self, guest: Guest, end: int) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(guest.pid, os.WNOHANG)
        asyncio.get_running_loop().remove_reader(end)
        os.close(end)
        guest.ended.set()
        self._over(guest)
        _log.info("copy_ended", pid=guest.pid)
