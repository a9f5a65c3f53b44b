"""A run of a cluster with faults: who may have loaded what, what became of every request, and whether all ends well."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from supervisor.core.cluster import messages as m
from supervisor.core.cluster.directory import CLAIM_S, RENEW_S
from supervisor.errors import SupervisorError
from tests.cluster.simulated.network import Network
from tests.cluster.simulated.node import Edges, Kind, SimNode
from tests.cluster.simulated.store import Servers, SimStore

LOST_S: Final = CLAIM_S - RENEW_S - 1.0
"""A node that could not renew its claims for so long may have lost them."""

HEARS_S: Final = 10.0
"""And it may take so long, once it can be told, until it has heard so."""

Times = list[tuple[float, float | None]]
"""Begin and end, None where it has not ended."""


def within(times: Times, now: float) -> float:
    """How much of these times lies in the last that count."""
    since = now - CLAIM_S - HEARS_S
    return sum(max(0.0, (now if end is None else end) - max(since, begin)) for begin, end in times)


_LOOK_S: Final = 0.25

QUIET_S: Final = 60.0
"""After which everything has found its end that faults have begun."""


@dataclass
class Clock:
    """A node's monotonic clock. It may stand still, as while its host sleeps, and go ahead."""

    ahead: float = 0.0
    stands_at: float | None = None

    def __call__(self) -> float:
        return _now() + self.ahead if self.stands_at is None else self.stands_at

    def stop(self) -> None:
        self.stands_at = self()

    def go_on(self) -> None:
        if self.stands_at is not None:
            self.ahead, self.stands_at = self.stands_at - _now(), None


@dataclass
class Host:
    """A node's place, whose process may be another one later. apart: times at which the store could not be reached."""

    name: str
    node: SimNode
    clock: Clock = field(default_factory=Clock)
    apart: Times = field(default_factory=list)

    @property
    def is_apart(self) -> bool:
        return bool(self.apart) and self.apart[-1][1] is None

    def set_apart(self, *, apart: bool) -> None:
        """Take note that it does not reach the store, or does again."""
        now = asyncio.get_running_loop().time()
        if apart and not self.is_apart:
            self.apart.append((now, None))
        elif not apart and self.is_apart:
            self.apart[-1] = self.apart[-1][0], now

    def lost(self, now: float, unled: Times) -> bool:
        """Whether it may have lost its claims without knowing, being apart.

        unled: when nobody could have renewed one.
        """
        alone = within(self.apart, now)
        return alone >= RENEW_S and alone + within(unled, now) >= LOST_S


@dataclass
class Outcome:
    """What has happened.

    Attributes:
        faults: how many, by kind.
        answers: requests by what became of them: `answered`, an error's code, or `client_lost`: its front door died.
        loads: engines that were started.
        twice: models loaded on a node while another one had them that had not lost them.
        wrong: whatever else must not be.
    """

    faults: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    loads: int = 0
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class World:
    """A cluster of so many nodes and servers. seed: of all that chance decides."""

    def __init__(self, seed: int, nodes: int = 5, servers: int = 3, models: int = 4) -> None:
        self.dice = random.Random(seed)
        self.outcome = Outcome()
        self.servers = Servers(servers, self.dice)
        self.network = Network()
        self.kind = Kind({f"model{number}": 10 << 30 for number in range(models)}, room=25 << 30)
        self.nodes: dict[str, SimNode] = {}
        self.stores: dict[str, SimStore] = {}
        self.hosts: dict[str, Host] = {}
        self.engines: dict[tuple[str, str], int] = {}
        self._asking: set[asyncio.Task[None]] = set()
        for number in range(nodes):
            name = f"n{number}"
            clock = Clock()
            self.hosts[name] = Host(name, self._made(name, clock), clock)

    def _made(self, name: str, clock: Clock) -> SimNode:
        edges = Edges(self.network, self.nodes, self._lives, clock, started_at=self.dice.uniform(1e9, 2e9))

        def store(changed: Callable[[bool], None]) -> SimStore:
            self.stores[name] = SimStore(self.servers, changed)
            return self.stores[name]

        made = SimNode(name, self.kind, edges, store)
        self.nodes[name] = made
        return made

    # what is watched

    def _lives(self, name: str, model: str, lives: bool) -> None:
        """Take note of an engine that starts or has ended."""
        if not lives:
            self.engines[name, model] -= 1
            return
        self.outcome.loads += 1
        now = _now()
        having = [one for (one, loaded), count in self.engines.items() if loaded == model and count]
        for other in having:
            lost = any(self.hosts[one].lost(now, self.servers.unled) for one in (name, other))
            copies = {name, other} <= self._claiming(model)
            if other != name and self._has(other, model) and not lost and not copies:
                self.outcome.twice.append(f"{now:.3f}: {model} on {name}, though {other} has it")
        self.engines[name, model] = self.engines.get((name, model), 0) + 1

    def _claiming(self, model: str) -> set[str]:
        """The nodes that have a claim of the model in the store: two of them have two copies of it, as they may."""
        found = (self.servers.get("claims", m.key_of(model, replica)).value for replica in range(len(self.hosts)))
        return {m.read(one, m.Claim).node for one in found if one is not None}

    def _has(self, name: str, model: str) -> bool:
        return name in self.network.running and self.nodes[name].told.running(model) is not None

    # a run

    async def run(self, faults: int, seconds: float) -> Outcome:
        """So many faults within so many seconds, and then quiet."""
        for host in self.hosts.values():
            host.node.start()
        seeing = asyncio.ensure_future(self._see_apart())
        await asyncio.sleep(8.0)
        clients = [asyncio.ensure_future(self._client(name)) for name in self.hosts]
        happening = [asyncio.ensure_future(self._fault(seconds)) for _ in range(faults)]
        await asyncio.gather(*happening)
        for client in clients:
            client.cancel()
        if self._asking:
            _, hang = await asyncio.wait(self._asking, timeout=QUIET_S * 2)
            self.outcome.wrong += [f"a request hangs: {one.get_name()}" for one in hang]
        await asyncio.sleep(QUIET_S)
        await self._check()
        seeing.cancel()
        for host in self.hosts.values():
            self.stores[host.name].close()
            await host.node.die(silently=False)
        return self.outcome

    async def _see_apart(self) -> None:
        """Take note all the time of who reaches no server that reaches the others."""
        while True:
            for host in self.hosts.values():
                store = self.stores[host.name]
                host.set_apart(apart=store.cut or (store.server is not None and store.server.apart))
            await asyncio.sleep(_LOOK_S)

    async def _check(self) -> None:
        """See whether all is well in the end."""
        wrong = self.outcome.wrong
        wrong += [f"{name} is not connected" for name, node in self.nodes.items() if not node.directory.connected]
        for model in self.kind.sizes:
            having = {name for name in self.hosts if self._has(name, model)}
            if having != self._claiming(model):
                wrong.append(f"{model} is loaded on {sorted(having)}, and {sorted(self._claiming(model))} claim it")
            for name, node in self.nodes.items():
                known = {one.claim.node for one in node.directory.claims(model, self.hosts[name].clock())}
                if known != having:
                    wrong.append(f"{name} knows that {sorted(known)} have {model}, and not {sorted(having)}")
        for name, model in itertools.product(self.hosts, self.kind.sizes):
            if (became := await self._ask(name, model)) != "answered":
                wrong.append(f"{name} does not answer for {model} in the end: {became}")

    async def _client(self, name: str) -> None:
        """Ask a node now and then."""
        while True:
            await asyncio.sleep(self.dice.expovariate(0.3))
            if name in self.network.running and name not in self.network.off:
                model = self.dice.choice(list(self.kind.sizes))
                task = asyncio.create_task(self._asked(name, model), name=f"{_now():.3f} {model} of {name}")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def _asked(self, name: str, model: str) -> None:
        self.outcome.answers[await self._ask(name, model)] += 1

    async def _ask(self, name: str, model: str) -> str:
        node = self.nodes[name]
        work = asyncio.ensure_future(node.ask(model))
        await asyncio.wait({work, node.ended}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            return "client_lost"
        try:
            work.result()
        except SupervisorError as error:
            return "client_lost" if node.ended.done() else error.code
        return "answered"

    # faults

    async def _fault(self, within: float) -> None:
        await asyncio.sleep(self.dice.uniform(0.0, within))
        kind: Callable[[], Awaitable[None]] = self.dice.choice(self._kinds)
        self.outcome.faults[kind.__name__.strip("_")] += 1
        await kind()

    @property
    def _kinds(self) -> list[Callable[[], Awaitable[None]]]:
        of_nodes = [self._killed, self._killed, self._off, self._unheard, self._island, self._apart, self._asleep]
        return [
            *of_nodes,
            self._clock_ahead,
            self._server_killed,
            self._server_frozen,
            self._server_apart,
            self._no_majority,
        ]

    async def _for(self, least: float, most: float) -> None:
        await asyncio.sleep(self.dice.uniform(least, most))

    def _some(self) -> Host:
        """A node that runs undisturbed, or any."""
        calm = [one for one in self.hosts.values() if not one.is_apart and one.name in self.network.running]
        return self.dice.choice(calm or list(self.hosts.values()))

    async def _killed(self) -> None:
        await self._ends(silently=False, least=0.5, most=40.0)

    async def _off(self) -> None:
        await self._ends(silently=True, least=5.0, most=60.0)

    async def _ends(self, *, silently: bool, least: float, most: float) -> None:
        host = self._some()
        if host.name not in self.network.running:
            return
        node = host.node
        if silently:
            self.stores[host.name].set_cut(cut=True)
        else:
            self.stores[host.name].close()
        await node.die(silently=silently)
        await self._for(least, most)
        self.stores[host.name].close()
        host.node = self._made(host.name, host.clock)
        host.node.start()

    async def _unheard(self) -> None:
        """Some node reaches some others, but not the store."""
        host = self._some()
        self._set_apart(host, apart=True)
        await self._for(1.0, 60.0)
        self._set_apart(host, apart=False)

    async def _apart(self) -> None:
        """Some nodes do not reach each other."""
        one, *others = self.dice.sample(list(self.hosts), self.dice.randint(2, len(self.hosts)))
        for other in others:
            self.network.cut(one, other)
        await self._for(1.0, 40.0)
        for other in others:
            self.network.mend(one, other)

    async def _island(self) -> None:
        """A node reaches nobody."""
        host = self._some()
        await self._alone(host)

    async def _asleep(self) -> None:
        """A host sleeps: its clock stands still."""
        host = self._some()
        if host.clock.stands_at is None:
            host.clock.stop()
            await self._alone(host)
            host.clock.go_on()

    async def _alone(self, host: Host) -> None:
        others = [name for name in self.hosts if name != host.name]
        for other in others:
            self.network.cut(host.name, other)
        self._set_apart(host, apart=True)
        await self._for(1.0, 60.0)
        self._set_apart(host, apart=False)
        for other in others:
            self.network.mend(host.name, other)

    def _set_apart(self, host: Host, *, apart: bool) -> None:
        self.stores[host.name].set_cut(cut=apart)

    async def _clock_ahead(self) -> None:
        """A clock goes ahead at once."""
        self._some().clock.ahead += self.dice.uniform(1.0, 3600.0)

    async def _server_killed(self) -> None:
        server = self.dice.choice(self.servers.all)
        self.servers.kill(server)
        await self._for(0.5, 40.0)
        self.servers.start(server)

    async def _server_frozen(self) -> None:
        server = self.dice.choice(self.servers.all)
        self.servers.freeze(server)
        await self._for(0.5, 60.0)
        self.servers.thaw(server)

    async def _server_apart(self) -> None:
        """A server reaches no other one; its clients believe that all is well."""
        server = self.dice.choice(self.servers.all)
        self.servers.part(server, apart=True)
        await self._for(0.5, 40.0)
        self.servers.part(server, apart=False)

    async def _no_majority(self) -> None:
        """All servers but one end."""
        ending = self.dice.sample(self.servers.all, max(1, len(self.servers.all) - 1))
        for server in ending:
            self.servers.kill(server)
        await self._for(0.5, 60.0)
        for server in ending:
            self.servers.start(server)


def _now() -> float:
    return asyncio.get_running_loop().time()
