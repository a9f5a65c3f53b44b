"""Nodes in this process, each with a connection of its own, and the clients that ask them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Set
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from benchmarks.clustersim.servers import Links, NatsServers
from supervisor.cluster.kept import Server
from supervisor.cluster.natsstore import NatsStore
from supervisor.core.cluster.directory import CLAIM_S, RENEW_S
from supervisor.errors import SupervisorError
from tests.cluster.simulated.network import Network
from tests.cluster.simulated.node import Edges, Kind, SimNode

_LOST_S: Final = CLAIM_S - RENEW_S
_LOOK_S: Final = 2.0
_AT_ONCE: Final = 20
_HEARS_S: Final = 15.0
_GIB: Final = 1 << 30


@dataclass
class Loads:
    """Counts loads, and those that no claim allowed.

    Attributes:
        has: whether a node has a model, which is ready or comes up.
        lost: whether a node may have lost its claims without knowing.
        claims: what is known of claims of a model on a node: who has claimed which copy.
        twice: models loaded on a node while another one had them that had not lost them, and not as a further copy.
    """

    has: Callable[[str, str], bool]
    lost: Callable[[str], bool]
    claims: Callable[[str, str], Set[tuple[str, int]]]
    twice: list[str] = field(default_factory=list)
    count: int = 0
    _having: Counter[tuple[str, str]] = field(default_factory=Counter)

    def begun(self, name: str, model: str, at: float) -> None:
        """Take note of an engine that starts."""
        self.count += 1
        for (other, loaded), count in self._having.items():
            lost = self.lost(other) or self.lost(name)
            has = loaded == model and other != name and count and self.has(other, model)
            if has and not lost and not self._are_copies(model, name, other):
                self.twice.append(f"{at:.1f}: {model} on {name}, though {other} has it")
        self._having[name, model] += 1

    def ended(self, name: str, model: str) -> None:
        """Take note of an engine that has ended."""
        self._having[name, model] -= 1

    def _are_copies(self, model: str, one: str, other: str) -> bool:
        """Whether each of two nodes has claimed a copy of its own."""
        claims = self.claims(one, model) | self.claims(other, model)
        first, second = ({replica for node, replica in claims if node == name} for name in (one, other))
        return bool(first - second) and bool(second - first)


class Fleet:
    """So many nodes, and half as many models."""

    def __init__(self, count: int, servers: NatsServers, links: Links, dice: random.Random) -> None:
        self.network = Network()
        self.nodes: dict[str, SimNode] = {}
        self.ahead: defaultdict[str, float] = defaultdict(float)  # seconds by which clocks are ahead
        self.answers: Counter[str] = Counter()  # requests, by what became of them
        self.loads = Loads(self.has, self._lost, self._claims)
        self.dice = dice
        self.models = [f"model-{number}" for number in range(max(2, count // 2))]
        self._kind = Kind(dict.fromkeys(self.models, 10 * _GIB), 25 * _GIB, load_s=3.0, first_s=0.05, rest_s=0.5)
        self._servers, self._links = servers, links
        self._tls = servers.kept.dialling()
        self._apart: dict[str, tuple[float, float | None]] = {}
        self._started: Callable[[str, str], None] = lambda name, model: None
        self._asking: set[asyncio.Task[None]] = set()
        for number in range(count):
            self.nodes[f"node-{number}"] = self._made(number)

    def _made(self, number: int) -> SimNode:
        name = f"node-{number}"
        wall = self.dice.uniform(1e9, 2e9)  # of a node that starts again it may be earlier than before
        edges = Edges(self.network, self.nodes, self._lives, lambda: time.monotonic() + self.ahead[name], wall)
        ways = [Server("127.0.0.1", port) for port in self._links.ports[number]]
        return SimNode(
            name, self._kind, edges, lambda changed: NatsStore(ways, self._tls, self._servers.kept.own, changed)
        )

    async def start(self) -> None:
        """Have all run, some at a time as they share a process, until each hears all others."""
        nodes = list(self.nodes.values())
        for first in range(0, len(nodes), _AT_ONCE):
            for node in nodes[first : first + _AT_ONCE]:
                node.start()
            while not all(node.directory.connected for node in nodes[: first + _AT_ONCE]):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.1)
        await self.all_hear()

    async def all_hear(self) -> None:
        """Wait until each node hears all others."""
        while not all(self._hears_all(node) for node in self.nodes.values()):  # noqa: ASYNC110 - many tell it
            await asyncio.sleep(_LOOK_S)

    def _hears_all(self, node: SimNode) -> bool:
        now = time.monotonic() + self.ahead[node.name]
        alive = [one for one in node.directory if one.load is not None and node.directory.alive(one, now)]
        return node.directory.connected and len(alive) == len(self.nodes)

    # what is watched

    def _lives(self, name: str, model: str, lives: bool) -> None:
        if lives:
            self.loads.begun(name, model, time.monotonic())
            self._started(name, model)
        else:
            self.loads.ended(name, model)

    def _claims(self, name: str, model: str) -> Set[tuple[str, int]]:
        """What a node knows of claims of a model."""
        found = self.nodes[name].directory.claims(model, time.monotonic() + self.ahead[name])
        return {(one.claim.node, one.claim.replica) for one in found}

    def _lost(self, name: str) -> bool:
        """Whether a node was cut off for so long that it may have lost its claims."""
        begin, end = self._apart.get(name, (0.0, 0.0))
        now = time.monotonic()
        return (now if end is None else end) - begin >= _LOST_S and (end is None or now - end < _HEARS_S)

    def has(self, name: str, model: str) -> bool:
        """Whether a model has an engine on a node, which is ready or comes up."""
        return name in self.network.running and self.nodes[name].told.running(model) is not None

    def owner(self, model: str) -> str | None:
        """A node that has a model loaded."""
        return next((name for name in self.nodes if self.has(name, model)), None)

    # what is asked

    def ask(self, name: str, model: str) -> None:
        """Have a client ask a node for a model."""
        task = asyncio.ensure_future(self._asked(name, model))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _asked(self, name: str, model: str) -> None:
        self.answers[await self.asked(name, model)] += 1

    async def asked(self, name: str, model: str) -> str:
        """What becomes of a request: `answered`, an error's code, or that its front door died."""
        node = self.nodes[name]
        work = asyncio.ensure_future(node.ask(model))
        await asyncio.wait({work, node.ended}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            return "front door died"
        try:
            work.result()
        except SupervisorError as error:
            return "front door died" if node.ended.done() else error.code
        return "answered"

    async def load_all(self) -> None:
        """Have every model loaded somewhere, and wait for it."""
        names = list(self.nodes)
        for first in range(0, len(self.models), 20):
            asked = (self.asked(self.dice.choice(names), model) for model in self.models[first : first + 20])
            await asyncio.gather(*asked)

    async def clients(self, rate: float) -> None:
        """Ask any node for any model, so often a second. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(self.dice.expovariate(rate))
            self.ask(self.dice.choice(sorted(self.network.running)), self.dice.choice(self.models))

    async def answered(self) -> None:
        """Wait until nobody waits for an answer."""
        while self._asking:
            await asyncio.wait(set(self._asking))

    # faults

    async def kill(self, name: str) -> None:
        """End a node's process."""
        node = self.nodes[name]
        await node.die(silently=False)
        await _closed(node)

    async def again(self, name: str) -> None:
        """Have a node run again."""
        self.nodes[name] = self._made(int(name.removeprefix("node-")))
        self.nodes[name].start()

    def cut(self, name: str) -> None:
        """Have a node reach nobody any more."""
        self._apart[name] = time.monotonic(), None
        self._links.set_cut(int(name.removeprefix("node-")), cut=True)
        for other in self.nodes:
            if other != name:
                self.network.cut(name, other)

    def mend(self, name: str) -> None:
        """Have it reach all again."""
        self._apart[name] = self._apart[name][0], time.monotonic()
        self._links.set_cut(int(name.removeprefix("node-")), cut=False)
        for other in self.nodes:
            if other != name:
                self.network.mend(name, other)

    async def routed_again(self, model: str, since: float) -> float:
        """Ask nodes for a model until one loads it; return the seconds since it was lost."""
        loaded: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def started(_name: str, which: str) -> None:
            if which == model and not loaded.done():
                loaded.set_result(time.monotonic() - since)

        self._started = started
        while not loaded.done():
            self.ask(self.dice.choice(sorted(self.network.running)), model)
            await asyncio.wait({loaded}, timeout=0.5)
        return loaded.result()

    async def close(self) -> None:
        """End all."""
        async with AsyncExitStack() as stack:
            for node in self.nodes.values():
                stack.push_async_callback(_closed, node)
                if not node.ended.done():
                    await node.die(silently=False)


async def _closed(node: SimNode) -> None:
    assert isinstance(node.store, NatsStore)
    await node.store.close()
