"""What API keys cost: the same requests to a daemon without keys and to one that asks for them, in turn.

    .venv/bin/python -m benchmarks.keys [--rounds N] [--engine PATH]

The keyed daemon knows 1,000 keys. The one in use has every limit there is, so that all of them are judged: models,
expiry, requests and tokens a minute, budget. Figures are CPU time of the daemon's process, medians over the rounds.

    request    a stream of two tokens, connection included
    event      of 8 streams at once that have no end
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.load import FirstEventsJob, Generator, StreamsJob
from benchmarks.model import make_model
from benchmarks.servers import Server, get, supervisor
from supervisor.core.requests.keys import MOST_KEYS
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_SLOTS = 8
_SAMPLES = 200
_SECONDS = 3.0
_MANY = 1_000_000


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    parser = argparse.ArgumentParser(description="CPU per request and event, with API keys and without.")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="(default: 9)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    arguments = parser.parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    with tempfile.TemporaryDirectory(prefix="keys-") as folder, ExitStack() as stack:
        found = _measure(binary, Path(folder), arguments.rounds, stack)
    print("| CPU per | without keys [µs] | with keys [µs] | ratio |\n|---|---|---|---|")
    for what, (off, on) in found.items():
        print(f"| {what} | {off:.1f} | {on:.1f} | {on / off:.3f} |")
    print(json.dumps({what: {"off": off, "on": on} for what, (off, on) in found.items()}))
    return 0


def _measure(binary: Path, folder: Path, rounds: int, stack: ExitStack) -> Mapping[str, tuple[float, float]]:
    model = folder / "bench.gguf"
    make_model(model)
    generator = Generator()
    stack.callback(generator.close)
    servers = []
    for name in ("off", "on"):
        (folder / name).mkdir(mode=0o700)
        servers.append(stack.enter_context(supervisor(binary, model, folder / name, _SLOTS)))
    servers[1] = keyed(servers[1])
    requests: list[list[float]] = []
    events: list[list[float]] = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        order = servers if number % 2 else servers[::-1]
        requests.append(_requests(servers, generator))
        took = {server.pid: _events(server, generator) for server in order}
        events.append([took[server.pid] for server in servers])
    return {"request": _medians(requests), "event": _medians(events)}


def keyed(server: Server) -> Server:
    """Close the server's door, and return it with a key that has every limit."""
    url = f"http://127.0.0.1:{server.place.port}/api/v1/keys"
    manager = _add(url, None, {"name": "manager", "scopes": ["manage"]})
    for number in range(MOST_KEYS - 2):
        _add(url, manager, {"name": f"k{number}", "models": ["another"]})
    limits = {"requests_per_minute": _MANY, "tokens_per_minute": _MANY, "token_budget": _MANY * _MANY}
    rules = {"name": "user", "models": ["other*", "bench*"], "expires_at": time.time() + 86_400, **limits}
    return replace(server, place=replace(server.place, key=_add(url, manager, rules)))


def _add(url: str, by: str | None, rules: Mapping[str, object]) -> str:
    headers = {"content-type": "application/json", **({} if by is None else {"x-api-key": by})}
    return str(get(urllib.request.Request(url, json.dumps(rules).encode(), headers))["key"])


def _requests(servers: Sequence[Server], generator: Generator) -> list[float]:
    all_places = tuple(server.place for server in servers)
    job = FirstEventsJob(all_places, tuple(server.pid for server in servers), _SAMPLES, "small")
    return [found.cpu_seconds / _SAMPLES * 1e6 for found in generator.first_events(job)]


def _events(server: Server, generator: Generator) -> float:
    found = generator.streams(StreamsJob(server.place, server.pid, _SLOTS, _SECONDS, server.engine, 0))
    return found.cpu_seconds / found.events * 1e6


def _medians(rounds: Sequence[Sequence[float]]) -> tuple[float, float]:
    return median(one[0] for one in rounds), median(one[1] for one in rounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
