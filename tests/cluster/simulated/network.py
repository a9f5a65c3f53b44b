"""The way from node to node that is played: calls that hang where it is cut, and break where a process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from supervisor.cluster.peerresponse import PeerUnreachable

_Result = TypeVar("_Result")

LATENCY_S: Final = 0.002
CONNECT_S: Final = 5.0
CUT_OFF_S: Final = 10.0  # after which the system gives a connection up on which nothing is acknowledged


@dataclass(eq=False)
class _Call:
    source: str
    target: str
    work: asyncio.Future[Any]
    broken: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def breaks(self) -> None:
        if not self.broken.done():
            self.broken.set_result(None)


class Network:
    """All ways.

    Attributes:
        running: the nodes whose process lives. off: those whose host is off, or hangs.
    """

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.off: set[str] = set()
        self._cuts: dict[frozenset[str], asyncio.Event] = {}
        self._calls: dict[_Call, None] = {}  # in order

    # faults

    def cut(self, one: str, other: str) -> None:
        """Have nothing get through between two nodes."""
        self._cuts.setdefault(frozenset((one, other)), asyncio.Event())
        for call in self._calls:
            if {call.source, call.target} == {one, other}:
                asyncio.get_running_loop().call_later(CUT_OFF_S, self._give_up, call)

    def mend(self, one: str, other: str) -> None:
        """Have everything get through again."""
        if (cut := self._cuts.pop(frozenset((one, other)), None)) is not None:
            cut.set()

    def end(self, name: str, *, silently: bool) -> None:
        """End a node's process. silently: with its host, so that nobody is told."""
        self.running.discard(name)
        if silently:
            self.off.add(name)
        for call in tuple(self._calls):
            if call.target == name:
                call.work.cancel()
                if silently:
                    asyncio.get_running_loop().call_later(CUT_OFF_S, call.breaks)
                else:
                    call.breaks()
            elif call.source == name:
                call.work.cancel()

    def begin(self, name: str) -> None:
        """Have a node's process run."""
        self.running.add(name)
        self.off.discard(name)

    async def drop(self, source: str, target: str) -> None:
        """Break all calls of one node to another."""
        for call in self._calls:
            if (call.source, call.target) == (source, target):
                call.breaks()

    def _give_up(self, call: _Call) -> None:
        if frozenset((call.source, call.target)) in self._cuts:
            call.breaks()

    # what is asked

    async def call(self, source: str, target: str, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Have work done at another node, and return what it gives. Raises PeerUnreachable."""
        await asyncio.sleep(LATENCY_S)
        if target in self.off or frozenset((source, target)) in self._cuts:
            await asyncio.sleep(CONNECT_S)
            raise PeerUnreachable("no connection in time", sent=False)
        if target not in self.running:
            raise PeerUnreachable("nobody listens there", sent=False, refused=True)
        task = asyncio.ensure_future(work())
        call = _Call(source, target, task)
        self._calls[call] = None
        try:
            await asyncio.wait({call.work, call.broken}, return_when=asyncio.FIRST_COMPLETED)
            await self._through(source, target, call)
            if call.broken.done() or task.cancelled():
                raise PeerUnreachable("it broke off", sent=True)
            await asyncio.sleep(LATENCY_S)
            return task.result()
        finally:
            del self._calls[call]
            task.cancel()

    async def _through(self, source: str, target: str, call: _Call) -> None:
        """Wait until what is said gets through, or the connection breaks."""
        if target in self.off:
            await call.broken
        while (cut := self._cuts.get(frozenset((source, target)))) is not None and not call.broken.done():
            mended: asyncio.Future[Any] = asyncio.ensure_future(cut.wait())
            await asyncio.wait({mended, call.broken}, return_when=asyncio.FIRST_COMPLETED)
            mended.cancel()
