"""What records of requests cost: the same requests to a daemon that keeps them and to one that does not, in turn.

    .venv/bin/python -m benchmarks.records [--of history|traces|captures] [--rounds N] [--engine PATH]

All count for /metrics; `history.days: 0` turns the history off. Traces go to a collector in this process, which throws
them away. Figures are CPU time of the daemon's process, the threads that write and send included, medians over the
rounds.

    request    a stream of two tokens, connection included
    event      of 8 streams at once that have no end
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from benchmarks.keys import in_turn
from benchmarks.load import Generator
from benchmarks.model import make_model
from benchmarks.servers import supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_SLOTS = 8

Pair = tuple[Mapping[str, object], Mapping[str, object]]


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    parser = argparse.ArgumentParser(description="CPU per request and event, with records of requests and without.")
    parser.add_argument("--of", choices=tuple(_KINDS), default="history", help="which ones (default: history)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="(default: 9)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    arguments = parser.parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    with tempfile.TemporaryDirectory(prefix="records-") as folder, ExitStack() as stack:
        settings = _KINDS[arguments.of](stack)
        found = _measure(binary, Path(folder), settings, arguments.rounds, stack)
    print(f"| CPU per | without {arguments.of} [µs] | with {arguments.of} [µs] | ratio |\n|---|---|---|---|")
    for what, (off, on) in found.items():
        print(f"| {what} | {off:.1f} | {on:.1f} | {on / off:.3f} |")
    print(json.dumps({what: {"off": off, "on": on} for what, (off, on) in found.items()}))
    return 0


def _history(_: ExitStack) -> Pair:
    return {"history": {"days": 0}}, {"history": {"days": 30}}


def _captures(_: ExitStack) -> Pair:
    return {}, {"capture": {"models": ["*"]}}


def _traces(stack: ExitStack) -> Pair:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    return {}, {"server": {"tracing": {"endpoint": f"http://127.0.0.1:{server.server_port}"}}}


_KINDS: Final[Mapping[str, Callable[[ExitStack], Pair]]] = {
    "history": _history,
    "traces": _traces,
    "captures": _captures,
}
"""The settings without and with each of them."""


class _Collector(BaseHTTPRequestHandler):
    """Takes traces, and throws them away."""

    def do_POST(self) -> None:
        """Answer that all is well."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _measure(
    binary: Path, folder: Path, pair: Pair, rounds: int, stack: ExitStack
) -> Mapping[str, tuple[float, float]]:
    model = folder / "bench.gguf"
    make_model(model)
    generator = Generator()
    stack.callback(generator.close)
    servers = []
    for name, settings in zip(("off", "on"), pair, strict=True):
        (folder / name).mkdir(mode=0o700)
        servers.append(stack.enter_context(supervisor(binary, model, folder / name, _SLOTS, settings=settings)))
    return in_turn(servers, generator, rounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
