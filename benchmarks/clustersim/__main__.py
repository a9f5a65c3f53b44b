"""Clusters of 10, 50 and 200 nodes on this machine: what they cost at rest and at work, and what faults do to them.

    .venv/bin/python -m benchmarks.clustersim [--nodes 10,50,200] [--servers 1,3] [--seconds 30] [--faults 6] [--seed 1]

All nodes are in this process, each with the real directory, member, choice, scheduler and connection to real NATS
servers; the way between nodes and the engines are played. There are half as many models as nodes, all loaded. CPU is
counted in CPU seconds, so that it says the same on a machine that does other work. A run of 200 nodes takes minutes.

    at rest          nobody asks; every node tells its load every 5 s, and renews its claims every 4 s
    at work          each node is asked every 5 s
    routed again     from the death of a node to the moment at which its model is being loaded elsewhere
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import structlog

from benchmarks.clustersim.fleet import Fleet
from benchmarks.clustersim.servers import Links, NatsServers

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]  # the module is absent, not of another type

_SETTLE_S: Final = 8.0
_CUT_S: Final = (2.0, 30.0)


@dataclass
class Cost:
    """Of a while. CPU in % of a core: of the busiest NATS server, and of a node. bytes: a node's, a second."""

    server: float
    node: float
    bytes: float


@dataclass
class Result:
    """Of a cluster."""

    nodes: int
    servers: int
    rest: Cost | None = None
    work: Cost | None = None
    faults: int = 0
    loads: int = 0
    twice: list[str] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    killed_s: list[float] = field(default_factory=list)
    cut_s: list[float] = field(default_factory=list)

    def row(self) -> str:
        """Its row of the table."""
        assert self.rest is not None
        assert self.work is not None
        costs = " | ".join(f"{one.server:.1f} | {one.node:.2f} | {one.bytes:,.0f}" for one in (self.rest, self.work))
        failed = sum(self.answers.values()) - self.answers.get("answered", 0)
        times = " | ".join(
            f"{statistics.median(one):.1f} / {max(one):.1f}" if one else "–" for one in (self.killed_s, self.cut_s)
        )
        asked = f"{failed} of {sum(self.answers.values())}"
        return f"| {self.nodes} | {self.servers} | {costs} | {len(self.twice)} | {asked} | {times} |"


async def measured(fleet: Fleet, servers: NatsServers, links: Links, seconds: float) -> Cost:
    """What so many seconds cost."""
    before, own, sent, began = servers.seconds(), time.process_time(), links.bytes(), time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    of_servers = [now - then for now, then in zip(servers.seconds(), before, strict=True)]
    return Cost(
        server=100 * max(of_servers) / took,
        node=100 * (time.process_time() - own) / took / len(fleet.nodes),
        bytes=(links.bytes() - sent) / took / len(fleet.nodes),
    )


async def happen(fleet: Fleet, servers: NatsServers, result: Result, times: int) -> None:
    """Every kind of fault so many times, one after the other, while clients ask."""
    for _ in range(times):
        victim, model = _loaded(fleet)
        _say(f"{time.monotonic():.1f} killed {victim}")
        await fleet.kill(victim)
        result.killed_s.append(await fleet.routed_again(model, time.monotonic()))
        await fleet.again(victim)

        victim, model = _loaded(fleet)
        _say(f"{time.monotonic():.1f} cut {victim}")
        fleet.cut(victim)
        result.cut_s.append(await fleet.routed_again(model, time.monotonic()))
        fleet.mend(victim)

        victim, _ = _loaded(fleet)
        _say(f"{time.monotonic():.1f} cut {victim} for a while")
        fleet.cut(victim)
        await asyncio.sleep(fleet.dice.uniform(*_CUT_S))
        fleet.mend(victim)

        number = fleet.dice.randrange(len(servers.addresses))
        _say(f"{time.monotonic():.1f} server stands still")
        servers.signal(number, signal.SIGSTOP)
        await asyncio.sleep(fleet.dice.uniform(*_CUT_S))
        servers.signal(number, signal.SIGCONT)

        _say(f"{time.monotonic():.1f} server goes on, one is killed, a clock goes ahead")
        servers.again(fleet.dice.randrange(len(servers.addresses)))
        fleet.ahead[fleet.dice.choice(list(fleet.nodes))] += fleet.dice.uniform(1.0, 3600.0)
        await asyncio.sleep(_SETTLE_S)
        result.faults += 6


def _loaded(fleet: Fleet) -> tuple[str, str]:
    """A node that has a model, and the model."""
    while True:
        model = fleet.dice.choice(fleet.models)
        if (owner := fleet.owner(model)) is not None:
            return owner, model


async def run(nodes: int, servers: int, asked: argparse.Namespace) -> Result:
    """Measure a cluster."""
    result = Result(nodes, servers)
    with _grounds(nodes, servers) as (nats, links):
        fleet = Fleet(nodes, nats, links, random.Random(asked.seed))
        try:
            await fleet.start()
            _say(f"{nodes} nodes, {servers} servers: all hear all")
            await fleet.load_all()
            await asyncio.sleep(_SETTLE_S)
            result.rest = await measured(fleet, nats, links, asked.seconds)
            _say(f"at rest: {result.rest}")
            asking = asyncio.ensure_future(fleet.clients(nodes / 5))
            result.work = await measured(fleet, nats, links, asked.seconds)
            _say(f"at work: {result.work}")
            await happen(fleet, nats, result, asked.faults)
            asking.cancel()
            async with asyncio.timeout(120):
                await fleet.answered()
                await fleet.all_hear()
        finally:
            result.answers, result.twice, result.loads = dict(fleet.answers), fleet.loads.twice, fleet.loads.count
            await fleet.close()
    _say(json.dumps(asdict(result)))
    return result


@contextlib.contextmanager
def _grounds(nodes: int, count: int) -> Iterator[tuple[NatsServers, Links]]:
    with tempfile.TemporaryDirectory(prefix="clustersim-") as scratch, contextlib.ExitStack() as stack:
        nats = NatsServers(count, Path(scratch))
        stack.callback(nats.close)
        links = Links(nats.addresses, nodes)
        stack.callback(links.close)
        yield nats, links


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="10,50,200")
    parser.add_argument("--servers", default="1,3")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--faults", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    factory = getattr(uvloop, "new_event_loop", None)
    results = []
    for servers in map(int, asked.servers.split(",")):
        for nodes in map(int, asked.nodes.split(",")):
            with asyncio.Runner(loop_factory=factory) as runner:
                results.append(runner.run(run(nodes, servers, asked)))
    print("| nodes | servers | rest: server % | node % | bytes/s | work: server % | node % | bytes/s | twice | failed |"
          " killed: routed again, median / worst s | cut off |")  # fmt: skip
    print("|" + "---|" * 12)
    for one in results:
        print(one.row())
    print(f"load of the machine: {os.getloadavg()}")
    return 1 if any(one.twice for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
