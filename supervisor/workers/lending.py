"""Lend a worker's devices to engines: a port of the loopback interface for each, and one engine at a time.

Only the daemon's own engines get through, others are hung up on at once: so is a second engine. A device belongs to its
engine until that process has ended, however many connections it makes one after another. Then the worker is told, and
its RPC server ends: what the next engine gets is a fresh one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from supervisor.core.workers.messages import Free, OfferedDevice, Open
from supervisor.core.workers.table import Offer, Worker
from supervisor.system import processes
from supervisor.workers.owner import Owners, connections_below
from supervisor.workers.splice import Side

_TUNNEL_S: Final = 20.0  # until a tunnel has come that was asked for
_AFTER_S: Final = 1.0  # until an engine sees that its device is lost: the daemon is to know it first
_MOST_UNKNOWN: Final = 1024  # connections of which it is not known yet whose they are
_MOST_CONNECTIONS: Final = 16  # of one engine to one device


class Voice(Protocol):
    """The connection over which a worker is told what to do."""

    def say(self, message: Free | Open) -> None:
        """Send it."""


@dataclass(eq=False)
class Lent:
    """One device.

    Attributes:
        sides: connections of the engine that has it.
        lost: it is lost to that engine; the next one may have it again.
    """

    worker: Worker
    offer: Offer
    voice: Voice
    listener: asyncio.Server | None = None
    sides: set[Side] = field(default_factory=set)
    watch: asyncio.Task[None] | None = None
    lost: bool = False


class Lending:
    """All devices of all workers.

    Args:
        parent: the process whose descendants engines are.
        clock: monotonic seconds.
        changed: called when a lease begins or ends.
        lost: told of devices that are lost to their engines: the worker's name, ports, and why.
    """

    def __init__(
        self,
        parent: int,
        clock: Callable[[], float],
        changed: Callable[[], None],
        lost: Callable[[str, tuple[int, ...], str], None],
    ) -> None:
        self._owners = Owners(partial(connections_below, parent))
        self._unknown = 0
        self._clock = clock
        self._changed = changed
        self._lost = lost
        self._lent: dict[tuple[str, str], Lent] = {}
        self._ports: dict[tuple[str, str], int] = {}
        self._number = 0
        self._expected: dict[int, tuple[Lent, asyncio.Future[Side]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def offer(self, worker: Worker, devices: Iterable[OfferedDevice], voice: Voice) -> None:
        """Open a port for each device of a worker that has connected. Raises OSError."""
        for device in devices:
            key = worker.name, device.name
            if key in self._lent:
                continue
            at = self._bound(key)
            port = self._ports[key] = at.getsockname()[1]
            lent = Lent(worker, Offer(device, port), voice)
            lent.listener = await asyncio.get_running_loop().create_server(partial(self._answer, lent), sock=at)
            self._lent[key] = lent
            worker.offers[device.name] = lent.offer

    def take_back(self, worker: Worker, reason: str) -> None:
        """End all that concerns a worker that is gone, or is let in no more."""
        mine = [lent for (name, _), lent in self._lent.items() if name == worker.name]
        used = tuple(lent.offer.port for lent in mine if lent.offer.lease is not None and not lent.lost)
        worker.offers.clear()
        if used:
            self._lost(worker.name, used, reason)
        for lent in mine:
            del self._lent[lent.worker.name, lent.offer.device.name]
            lent.lost = True
            if lent.listener is not None:
                lent.listener.close()
            self._hang_up_soon(lent)
        for lent, future in tuple(self._expected.values()):
            if lent.worker is worker and not future.done():
                future.set_exception(ConnectionError(reason))

    def give_up(self, worker: Worker, offer: Offer, reason: str) -> None:
        """Take a device from its engine: its RPC server is hung, or has ended."""
        lent = self._lent.get((worker.name, offer.device.name))
        if lent is not None and lent.offer.lease is not None and not lent.lost:
            lent.lost = True
            self._lost(worker.name, (offer.port,), reason)
            self._hang_up_soon(lent)

    def arrive(self, worker: str, number: int, transport: asyncio.Transport) -> Side | None:
        """Take in a tunnel of a worker; None where nobody waits for it."""
        lent, future = self._expected.get(number, (None, None))
        if lent is None or future is None or future.done() or lent.worker.name != worker:
            return None
        side = Side(partial(self._came, lent), lambda: self._broke_off(lent, side))
        side.take(transport)
        future.set_result(side)
        return side

    def unable(self, worker: str, number: int, reason: str) -> None:
        """Take note that a worker cannot open a tunnel."""
        lent, future = self._expected.get(number, (None, None))
        if lent is not None and future is not None and not future.done() and lent.worker.name == worker:
            future.set_exception(ConnectionError(reason))

    def close(self) -> None:
        """End everything."""
        for lent in self._lent.values():
            if lent.listener is not None:
                lent.listener.close()
            if lent.watch is not None:
                lent.watch.cancel()
        for task in self._tasks:
            task.cancel()

    def _bound(self, key: tuple[str, str]) -> socket.socket:
        """Return a socket, at the port that the device had before where that is free."""
        before = self._ports.get(key)
        if before is not None:
            with contextlib.suppress(OSError):
                return _bound_to(before)
        return _bound_to(0)

    def _answer(self, lent: Lent) -> Side:
        """Return what takes a connection to a device's port."""
        side = Side(partial(self._sent, lent), lambda: self._hang_up(lent, side))
        asyncio.get_running_loop().call_soon(self._begin, self._connect(lent, side))
        return side

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, lent: Lent, side: Side) -> None:
        if not await self._is_its_engine(lent, side):
            side.close()
            return
        lent.sides.add(side)
        try:
            far = await self._tunnel(lent)
        except (OSError, TimeoutError) as error:
            self.give_up(lent.worker, lent.offer, str(error) or f"it opened no connection within {_TUNNEL_S:g} s")
            return
        if side.over or lent.lost:
            far.close()
        else:
            side.join(far)

    async def _is_its_engine(self, lent: Lent, side: Side) -> bool:
        """Return whether the connection is of the engine that has the device, or may have it now."""
        ends = side.ends()
        if ends is None or len(lent.sides) >= _MOST_CONNECTIONS or self._unknown >= _MOST_UNKNOWN:
            return False
        self._unknown += 1
        try:
            pid = await self._owners.of(ends)
        finally:
            self._unknown -= 1
        await self._until_noticed(lent, pid)
        lease = lent.offer.lease
        if pid is None or lent.lost or (lease is not None and lease.pid != pid):
            return False
        if lease is None:
            lent.offer.lend(pid)
            lent.watch = asyncio.ensure_future(self._until_ended(lent, pid))
            self._changed()
        return True

    async def _until_noticed(self, lent: Lent, pid: int | None) -> None:
        """Wait until the end of an engine is noticed here that has ended already: the next one may be as quick."""
        lease = lent.offer.lease
        if lease is None or lent.watch is None or lease.pid == pid or processes.is_running(lease.pid):
            return
        await asyncio.wait({lent.watch}, timeout=_TUNNEL_S)

    async def _tunnel(self, lent: Lent) -> Side:
        self._number += 1
        number = self._number
        future: asyncio.Future[Side] = asyncio.get_running_loop().create_future()
        self._expected[number] = lent, future
        try:
            lent.voice.say(Open(number, lent.offer.device.name))
            async with asyncio.timeout(_TUNNEL_S):
                return await future
        finally:
            del self._expected[number]

    async def _until_ended(self, lent: Lent, pid: int) -> None:
        await processes.gone(pid)
        for side in tuple(lent.sides):
            self._hang_up(lent, side)
        lent.offer.free()
        lent.lost = False
        lent.voice.say(Free(lent.offer.device.name))
        self._changed()

    def _sent(self, lent: Lent) -> None:
        if lent.offer.lease is not None:
            lent.offer.lease.sent(self._clock())

    def _came(self, lent: Lent) -> None:
        if lent.offer.lease is not None:
            lent.offer.lease.came()

    def _broke_off(self, lent: Lent, far: Side) -> None:
        """A tunnel has ended at the worker's end: an RPC server never closes a connection, so it is no more."""
        self.give_up(lent.worker, lent.offer, "its RPC server has ended")

    def _hang_up(self, lent: Lent, side: Side) -> None:
        """Close a connection of an engine, and its tunnel."""
        lent.sides.discard(side)
        side.close()
        if side.peer is not None:
            side.peer.close()

    def _hang_up_soon(self, lent: Lent) -> None:
        sides = tuple(lent.sides)  # of this engine; by then the next one may have the device

        def hang_up() -> None:
            for side in sides:
                self._hang_up(lent, side)

        asyncio.get_running_loop().call_later(_AFTER_S, hang_up)


def _bound_to(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
    except OSError:
        found.close()
        raise
    return found
