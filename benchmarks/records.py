"""What the history costs: the same requests to a daemon that keeps one and to one that keeps none, in turn.

    .venv/bin/python -m benchmarks.records [--rounds N] [--engine PATH]

Both count for /metrics; `history.days: 0` turns the history off. Figures are CPU time of the daemon's process, the
thread that writes included, medians over the rounds.

    request    a stream of two tokens, connection included
    event      of 8 streams at once that have no end
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.keys import in_turn
from benchmarks.load import Generator
from benchmarks.model import make_model
from benchmarks.servers import supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_SLOTS = 8
_GOAL = 1.05


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    parser = argparse.ArgumentParser(description="CPU per request and event, with a history and without.")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="(default: 9)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    arguments = parser.parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    with tempfile.TemporaryDirectory(prefix="records-") as folder, ExitStack() as stack:
        found = _measure(binary, Path(folder), arguments.rounds, stack)
    print("| CPU per | without a history [µs] | with one [µs] | ratio |\n|---|---|---|---|")
    for what, (off, on) in found.items():
        print(f"| {what} | {off:.1f} | {on:.1f} | {on / off:.3f} (goal: at most {_GOAL}) |")
    print(json.dumps({what: {"off": off, "on": on} for what, (off, on) in found.items()}))
    return 0


def _measure(binary: Path, folder: Path, rounds: int, stack: ExitStack) -> Mapping[str, tuple[float, float]]:
    model = folder / "bench.gguf"
    make_model(model)
    generator = Generator()
    stack.callback(generator.close)
    servers = []
    for name, days in (("off", 0), ("on", 30)):
        (folder / name).mkdir(mode=0o700)
        settings = {"history": {"days": days}}
        servers.append(stack.enter_context(supervisor(binary, model, folder / name, _SLOTS, settings=settings)))
    return in_turn(servers, generator, rounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
