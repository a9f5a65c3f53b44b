"""A store that is played: servers with a leader, and a connection for each node, on which everything takes its time.

What it does wrong is what real ones do: a call may have been carried out though its answer never comes, or be carried
out long after it was given up; what was sent on a connection that hangs arrives late, and in order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from supervisor.cluster.store import Bucket, Entry, StoreUnavailable
from supervisor.core.cluster.directory import CLAIM_S

_Result = TypeVar("_Result")

ANSWER_S: Final = 3.0
AGAIN_S: Final = 0.5
LATENCY_S: Final = (0.001, 0.01)
ELECTION_S: Final = (2.0, 6.0)
NOTICED_S: Final = (4.0, 6.0)  # that nothing comes any more
GIVEN_UP_S: Final = (2.0, 6.0)  # and then that the connection is of no use
LATE_S: Final = 1.0  # by which a claim may end too late


@dataclass(frozen=True, slots=True)
class _Kept:
    value: bytes | None
    revision: int
    ends_at: float


@dataclass(slots=True)
class Server:
    """One of them. up: it runs. frozen: it stands still. apart: it reaches no other server."""

    number: int
    up: bool = True
    frozen: bool = False
    apart: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)  # what came while it stood still

    @property
    def votes(self) -> bool:
        return self.up and not self.frozen and not self.apart

    def take(self, work: Callable[[], None]) -> None:
        """Have it work; later, where it stands still."""
        if self.frozen:
            self.held.append(work)
        elif self.up:
            work()


class Servers:
    """The servers, and what they keep."""

    def __init__(self, count: int, dice: random.Random) -> None:
        self.all = [Server(number) for number in range(count)]
        self.dice = dice
        self.connections: list[Connection] = []
        self.unled: list[tuple[float, float | None]] = []  # when there was no leader
        self._leader: Server | None = self.all[0]
        self._electing = False
        self._kept: dict[Bucket, dict[str, _Kept]] = {"nodes": {}, "claims": {}, "config": {}}
        self._revisions: dict[Bucket, int] = {"nodes": 0, "claims": 0, "config": 0}

    # faults

    def kill(self, server: Server) -> None:
        """End a server: its connections break at once."""
        server.up, server.held = False, []
        for one in tuple(self.connections):
            if one.server is server:
                one.breaks()
        self._look()

    def start(self, server: Server) -> None:
        """Have it run again; it has what it had."""
        server.up = True
        self._look()

    def freeze(self, server: Server) -> None:
        """Have it stand still."""
        server.frozen = True
        self._look()

    def thaw(self, server: Server) -> None:
        """Have it go on: it does what it was told meanwhile."""
        server.frozen = False
        self._look()
        held, server.held = server.held, []
        for work in held:
            work()
        for one in self.connections:
            one.flush()

    def part(self, server: Server, *, apart: bool) -> None:
        """Cut a server off the others, or have it back."""
        server.apart = apart
        self._look()

    def _look(self) -> None:
        if self._leader is not None and not (self._leader.votes and self._majority):
            self._leader = None
            self.unled.append((_now(), None))
        if self._leader is None and self._majority and not self._electing:
            self._electing = True
            _later(self.dice.uniform(*ELECTION_S), self._elect)

    @property
    def _majority(self) -> bool:
        return len([one for one in self.all if one.votes]) * 2 > len(self.all)

    def _elect(self) -> None:
        self._electing = False
        if self._leader is None and self._majority:
            self._leader = self.dice.choice([one for one in self.all if one.votes])
            self.unled[-1] = self.unled[-1][0], _now()

    # what is asked

    def leads(self, server: Server) -> bool:
        """Whether a call that has come to this server is carried out."""
        return self._leader is not None and server.votes

    def near(self, server: Server) -> list[Connection]:
        """The connections that hear what is published there."""
        return [
            one
            for one in self.connections
            if one.server is server or (not one.server.apart and not server.apart and one.server.up)
        ]

    def get(self, bucket: Bucket, key: str) -> Entry:
        """What a key has; revision 0: it never had anything, or that has ended."""
        found = self._kept[bucket].get(key)
        if found is None or found.ends_at <= _now():
            return Entry(key, None, 0)
        return Entry(key, found.value, found.revision)

    def every(self, bucket: Bucket) -> list[Entry]:
        """All that a bucket has, oldest first."""
        found = [self.get(bucket, key) for key in self._kept[bucket]]
        return sorted((one for one in found if one.revision), key=lambda one: one.revision)

    def write(self, bucket: Bucket, key: str, value: bytes | None) -> int:
        """Write a key, and tell those who watch."""
        revision = self._revisions[bucket] = self._revisions[bucket] + 1
        lasts = CLAIM_S + self.dice.uniform(0.0, LATE_S) if bucket == "claims" else float("inf")
        self._kept[bucket][key] = _Kept(value, revision, _now() + lasts)
        for one in self.connections:
            if not one.server.apart:
                one.tell(bucket, Entry(key, value, revision))
        return revision


class Connection:
    """A connection of a node to one server. Both ways keep the order, and hold what does not get through."""

    def __init__(self, store: SimStore, server: Server) -> None:
        self.store = store
        self.server = server
        self.hears: dict[str, Callable[[Entry], None]] = {}
        self.hears_loads: Callable[[bytes], None] | None = None
        self._ways: dict[Literal["up", "down"], list[Callable[[], None]]] = {"up": [], "down": []}
        self._quiet: list[asyncio.TimerHandle] = []

    @property
    def passes(self) -> bool:
        return not self.store.cut and not self.server.frozen

    def send(self, way: Literal["up", "down"], work: Callable[[], None]) -> None:
        """Have something done at the other end, after what was sent before."""
        self._ways[way].append(work)
        _later(self.store.servers.dice.uniform(*LATENCY_S), self.flush)

    def flush(self) -> None:
        """Bring what waits to its end, where it gets through."""
        if self not in self.store.servers.connections:
            return
        if not self.store.cut:  # a server that stands still has what it was sent
            for work in self._taken("up"):
                self.server.take(work)
        if self.passes:
            for work in self._taken("down"):
                work()
        self._listen()

    def _taken(self, way: Literal["up", "down"]) -> list[Callable[[], None]]:
        found, self._ways[way] = self._ways[way], []
        return found

    def _listen(self) -> None:
        """Notice in time that nothing comes any more, or that it comes again."""
        dice = self.store.servers.dice
        if self.passes:
            for timer in self._quiet:
                timer.cancel()
            if self._quiet:
                self.store.note(answers=True)
            self._quiet = []
        elif not self._quiet:
            noticed = dice.uniform(*NOTICED_S)
            given_up = noticed + dice.uniform(*GIVEN_UP_S)
            self._quiet = [
                _later(noticed, lambda: self.store.note(answers=False)),
                _later(given_up, self.breaks),
            ]

    def tell(self, bucket: Bucket, entry: Entry) -> None:
        """Tell the node of a change, if it watches."""
        if (hear := self.hears.get(bucket)) is not None:
            self.send("down", lambda: hear(entry))

    def breaks(self) -> None:
        """End it; the node looks for another one. A server that stands still keeps what it was sent."""
        if self in self.store.servers.connections:
            self.store.servers.connections.remove(self)
            for timer in self._quiet:
                timer.cancel()
            self.store.lost()


class SimStore:
    """A node's store (`Store`). cut: nothing gets through between the node and the servers."""

    def __init__(self, servers: Servers, changed: Callable[[bool], None]) -> None:
        self.servers = servers
        self.cut = False
        self._changed = changed
        self._answers = True
        self._connection: Connection | None = None
        self._closed = False

    async def connect(self) -> None:
        """Connect, trying until it can be done."""
        while not self._dial():  # noqa: ASYNC110 - nobody tells when a server can be reached
            await asyncio.sleep(AGAIN_S)

    @property
    def server(self) -> Server | None:
        """The server that it is connected with."""
        return None if self._connection is None else self._connection.server

    def close(self) -> None:
        """Break off."""
        self._closed = True
        if self._connection in self.servers.connections:
            self.servers.connections.remove(self._connection)

    def set_cut(self, *, cut: bool) -> None:
        """Have nothing get through, or again."""
        self.cut = cut
        if self._connection is not None:
            self._connection.flush()

    def _dial(self) -> bool:
        able = [one for one in self.servers.all if one.up and not one.frozen]
        if self.cut or not able:
            return False
        self._connection = Connection(self, self.servers.dice.choice(able))
        self.servers.connections.append(self._connection)
        return True

    def lost(self) -> None:
        """Take note that the connection is no more."""
        self._connection = None
        self.note(answers=False)
        if not self._closed:
            _later(AGAIN_S, self._again)

    def _again(self) -> None:
        if self._closed:
            return
        if self._dial():
            self.note(answers=True)
        else:
            _later(AGAIN_S, self._again)

    def note(self, *, answers: bool) -> None:
        """Tell whether the servers answer, if that is new."""
        if answers != self._answers and not self._closed:
            self._answers = answers
            self._changed(answers)

    # see `Store`

    async def ready(self) -> None:
        await self._asked(lambda: None)

    async def put(self, bucket: Bucket, key: str, value: bytes | None) -> None:
        await self._asked(lambda: self.servers.write(bucket, key, value))

    async def create(self, bucket: Bucket, key: str, value: bytes) -> Entry:
        def create() -> Entry:
            found = self.servers.get(bucket, key)
            return found if found.value is not None else Entry(key, value, self.servers.write(bucket, key, value))

        return await self._asked(create)

    async def update(self, bucket: Bucket, key: str, value: bytes | None, revision: int) -> int | None:
        def update() -> int | None:
            if self.servers.get(bucket, key).revision != revision:
                return None
            written = self.servers.write(bucket, key, value)
            return revision if value is None else written

        return await self._asked(update)

    async def history(self, bucket: Bucket, key: str) -> list[Entry]:
        return []

    async def watch(self, bucket: Bucket, hear: Callable[[Entry], None]) -> None:
        connection, known = self._held(), asyncio.get_running_loop().create_future()

        def all_told() -> None:
            if not known.done():
                known.set_result(None)

        def begin() -> None:
            connection.hears[bucket] = hear
            for entry in self.servers.every(bucket):
                connection.tell(bucket, entry)
            connection.send("down", all_told)

        await self._asked(begin)
        await _within(known)

    async def publish(self, data: bytes, hear: Callable[[bytes], None] | None = None) -> None:
        connection = self._held()
        if hear is not None:
            connection.hears_loads = hear

        def publish() -> None:
            for one in self.servers.near(connection.server):
                if (told := one.hears_loads) is not None:
                    one.send("down", lambda told=told: told(data))  # type: ignore[misc]  # bound at once

        connection.send("up", publish)

    def _held(self) -> Connection:
        if self._connection is None:
            raise StoreUnavailable("it is not connected")
        return self._connection

    async def _asked(self, work: Callable[[], _Result]) -> _Result:
        connection = self._held()
        answer: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            if self.servers.leads(connection.server):  # else nobody answers
                found = work()
                connection.send("down", lambda: None if answer.done() else answer.set_result(found))

        connection.send("up", carry_out)
        return await _within(answer)


async def _within(answer: asyncio.Future[_Result]) -> _Result:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await answer
    except TimeoutError:
        raise StoreUnavailable("it does not answer") from None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _later(seconds: float, work: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, work)
