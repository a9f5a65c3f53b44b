"""What a change saves: the same requests to this checkout's daemon and to that of another one, in turn.

    .venv/bin/python -m benchmarks.compare CHECKOUT [--rounds N] [--engine PATH]

Figures are CPU time of the daemon's process, medians over the rounds; the ratio is the median of the rounds' ratios.
They mean what they mean in benchmarks/relay.py. Both daemons run with this checkout's packages.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.load import SHAPES, FirstEventsJob, Generator, StreamsJob
from benchmarks.model import make_model
from benchmarks.servers import Server, supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_SLOTS = 64
_SAMPLES = 100
_SECONDS = 1.5
_STREAMS = ((1, 0), (1, 63), (8, 56), (32, 0))  # measured, and beside them

Figures = dict[str, list[tuple[float, float]]]


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    parser = argparse.ArgumentParser(description="CPU per request and event, of two checkouts.")
    parser.add_argument("checkout", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    arguments = parser.parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="compare-") as name, ExitStack() as stack:
        folder = Path(name)
        make_model(folder / "bench.gguf")
        generator = Generator()
        stack.callback(generator.close)
        servers: list[Server] = []
        for one, checkout in (("before", arguments.checkout.absolute()), ("now", Path.cwd())):
            (folder / one).mkdir(mode=0o700)
            started = supervisor(binary, folder / "bench.gguf", folder / one, _SLOTS, checkout)
            servers.append(stack.enter_context(started))
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
            _round(servers, generator, found)
    print("| CPU per | before [µs] | now [µs] | ratio |\n|---|---|---|---|")
    for what, rounds in found.items():
        before, now, ratio = (median(column) for column in zip(*((a, b, b / a) for a, b in rounds), strict=True))
        print(f"| {what} | {before:.1f} | {now:.1f} | {ratio:.3f} |")
    return 0


def _round(servers: Sequence[Server], generator: Generator, found: Figures) -> None:
    asked, pids = tuple(one.place for one in servers), tuple(one.pid for one in servers)
    for shape in SHAPES:
        results = generator.first_events(FirstEventsJob(asked, pids, _SAMPLES, shape))
        first, second = (one.cpu_seconds / _SAMPLES * 1e6 for one in results)
        found.setdefault(f"request, {shape}", []).append((first, second))
    for count, beside in _STREAMS:
        first, second = (_per_event(one, count, beside, generator) for one in servers)
        name = f"event, {count} stream{'' if count == 1 else 's'}{', paced' if beside else ''}"
        found.setdefault(name, []).append((first, second))


def _per_event(server: Server, count: int, beside: int, generator: Generator) -> float:
    result = generator.streams(StreamsJob(server.place, server.pid, count, _SECONDS, server.engine, beside))
    return result.cpu_seconds / result.events * 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
