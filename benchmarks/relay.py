"""What the relay costs: the same requests to an engine directly and through three relays.

They are the barest one that Python can be (benchmarks/bare.py), this program, and llama-server's router.

    .venv/bin/python -m benchmarks.relay [--quick] [--rounds N] [--streams 1,8,32,256] [--engine PATH]

Every round visits all servers in turn, so that what else the machine does meets all alike; figures are medians
over the rounds. The table goes to stdout, after it the goals, and one line of JSON with all figures.

CPU per event is the relaying process's own user and system time (not its engines'), in a window in which every
stream runs: no connecting, no prompts. Its measures:

    unpaced   the engine computes for these streams alone, as fast as it can on one thread
    paced     64 streams keep the engine busy, so that a stream gets some tens of tokens a second like that of a real
              model; only the given number goes through the server under test, the others to its engine directly

At 256 streams one thread's engine is slow enough to pace them by itself, so there is no second figure.

CPU per request is that process's own time for a stream of two tokens, connection included. `keyed` is this program
with 1,000 API keys (benchmarks/keys.py).

With tools in a request this program looks for calls in the answer, and the engine behind the router parses it as well.

First event: from connecting to the first event of a streaming request; `added` is against the direct one's median (or
95th percentile) of the same run. Every request has a connection of its own. docs/benchmarks.md explains the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.keys import keyed
from benchmarks.leave import freed_after
from benchmarks.load import SHAPES, EmbeddingsJob, FirstEventsJob, Generator, StreamsJob
from benchmarks.model import make_model
from benchmarks.report import Report, Target, percentile, targets_table
from benchmarks.servers import Server, bare, direct, router, supervisor
from benchmarks.startup import added_seconds, ps_seconds, ready_after
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_PACED = 64  # streams that keep an engine busy
_WITH_TOOLS = 8  # streams of requests with a tool

_TARGETS = (
    *(Target(f"added to first event, {shape}, p50 [ms]", 1.0) for shape in ("small", "30 tools")),
    Target("added to first event, 100 KB, p50 [ms]", 0.5),
    Target("CPU per event, 1 stream [µs]", 1.0),
    Target("CPU per event, 1 stream, paced [µs]", 1.3),
    *(Target(f"CPU per event, {count} streams [µs]", 0.6) for count in (32, 256)),
    *(Target(f"CPU per event, {_WITH_TOOLS} streams, 1 tool{rest} [µs]", 1.0) for rest in ("", ", paced")),
    Target("events, 256 streams [1/s]", 1.0, least=True),
    Target("CPU per request, small [µs]", 1.03, "keyed", "supervisor"),
    Target(f"CPU per event, {_WITH_TOOLS} streams [µs]", 1.03, "keyed", "supervisor"),
)


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    streams: tuple[int, ...]
    seconds: float  # of each window
    first_events: int
    embeddings: int
    loads: int
    ps_runs: int


@dataclass(frozen=True)
class Crowd:
    """Streams at once, of requests of one shape, while `beside` others keep the engine busy."""

    count: int
    beside: int = 0
    shape: str = "small"

    @property
    def name(self) -> str:
        """What they are called in the table."""
        kind = "" if self.shape == "small" else f", {self.shape}"
        return f"{self.count} stream{'' if self.count == 1 else 's'}{kind}{', paced' if self.beside else ''}"


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    arguments = _parser().parse_args(argv)
    streams = tuple(int(count) for count in arguments.streams.split(","))
    plan = Plan(arguments.rounds, streams, 1.5, 40, 200, 10, 10)
    if arguments.quick:
        plan = Plan(1, tuple(count for count in streams if count <= 8) or streams[:1], 0.3, 10, 16, 1, 1)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    with tempfile.TemporaryDirectory(prefix="relay-") as folder, ExitStack() as stack:
        report = Report()
        _measure(plan, binary, Path(folder), report, stack)
    print(report.table(), targets_table(_TARGETS, report.figures()), sep="\n\n")
    print(json.dumps(report.figures()))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="CPU, delay and throughput of the relay.")
    parser.add_argument("--quick", action="store_true", help="a smoke run of some seconds")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--streams", default="1,8,32,256", metavar="N,N", help="streams at once (default: 1,8,32,256)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    return parser


def _measure(plan: Plan, binary: Path, folder: Path, report: Report, stack: ExitStack) -> None:
    model = folder / "bench.gguf"
    make_model(model)
    generator = Generator()
    stack.callback(generator.close)
    slots = max(_PACED, *plan.streams)
    ours = stack.enter_context(supervisor(binary, model, folder, slots))
    alone = stack.enter_context(direct(binary, model, folder, slots))
    servers = [
        alone,
        stack.enter_context(bare(alone, folder)),
        ours,
        stack.enter_context(router(binary, model, folder, slots)),
    ]
    (folder / "keyed").mkdir(mode=0o700)
    locked = replace(keyed(stack.enter_context(supervisor(binary, model, folder / "keyed", slots))), name="keyed")
    report.add("memory after start", "MiB", "supervisor", _rss(ours))
    for round_number in range(plan.rounds):
        print(f"round {round_number + 1} of {plan.rounds}", file=sys.stderr, flush=True)
        for shape in SHAPES:
            _first_events(shape, plan, [*servers, locked] if shape == "small" else servers, generator, report)
        _embeddings(plan, servers, generator, report)
        _leaving(servers, report)
        for count in plan.streams:
            _streams(Crowd(count), plan, [*servers, locked] if count == _WITH_TOOLS else servers, generator, report)
            if count < _PACED:
                _streams(Crowd(count, _PACED - count), plan, servers, generator, report)
        for beside in (0, _PACED - _WITH_TOOLS):
            _streams(Crowd(_WITH_TOOLS, beside, "1 tool"), plan, servers[1:], generator, report)
    report.add("memory after all rounds", "MiB", "supervisor", _rss(ours))
    report.add("engine ready to answer", "ms", "supervisor", *ready_after(binary, model, folder / "ready", plan.loads))
    seconds = ps_seconds(f"http://127.0.0.1:{ours.place.port}", plan.ps_runs)
    if isinstance(seconds, str):
        print(f"no time of ps: {seconds}", file=sys.stderr)
    else:
        report.add("bin/supervisor ps", "ms", "supervisor", seconds * 1000)
        report.add("of it bin/supervisor", "ms", "supervisor", added_seconds(plan.ps_runs) * 1000)


def _streams(crowd: Crowd, plan: Plan, servers: Sequence[Server], generator: Generator, report: Report) -> None:
    for server in servers:
        where = (server.place, server.pid, crowd.count, plan.seconds, server.engine)
        found = generator.streams(StreamsJob(*where, crowd.beside, crowd.shape))
        if server.name != "direct":
            report.add(f"CPU per event, {crowd.name}", "µs", server.name, found.cpu_seconds / found.events * 1e6)
        if not crowd.beside:
            report.add(f"events, {crowd.name}", "1/s", server.name, found.events / found.seconds)


def _first_events(shape: str, plan: Plan, servers: Sequence[Server], generator: Generator, report: Report) -> None:
    places, pids = tuple(server.place for server in servers), tuple(server.pid for server in servers)
    results = generator.first_events(FirstEventsJob(places, pids, plan.first_events, shape))
    for percent in (50, 95) if shape == "small" else (50,):
        base = percentile(results[0].times, percent)
        for server, found in zip(servers, results, strict=True):
            value = percentile(found.times, percent)
            report.add(f"first event, {shape}, p{percent}", "ms", server.name, value)
            if server.name != "direct":
                report.add(f"added to first event, {shape}, p{percent}", "ms", server.name, value - base)
    for server, found in zip(servers[1:], results[1:], strict=True):
        report.add(f"CPU per request, {shape}", "µs", server.name, found.cpu_seconds / plan.first_events * 1e6)


def _embeddings(plan: Plan, servers: Sequence[Server], generator: Generator, report: Report) -> None:
    for at_once in (1, 8):
        for server in servers:
            rate = generator.embeddings(EmbeddingsJob(server.place, plan.embeddings, at_once))
            report.add(f"embeddings, {at_once} at once", "1/s", server.name, rate)


def _leaving(servers: Sequence[Server], report: Report) -> None:
    for server in servers[2:]:
        for name, stream in (("stream", True), ("one piece", False)):
            report.add(f"slot free after leaving, {name}", "ms", server.name, freed_after(server, stream=stream) * 1000)


def _rss(server: Server) -> float:
    return float(psutil.Process(server.pid).memory_info().rss / 2**20)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
