"""Many short requests: none may be lost, and nothing may be left of them.

    .venv/bin/python -m benchmarks.short [--requests N] [--at-once N] [--engine PATH]

Every request is a streamed chat of two tokens with a connection of its own. It counts as answered if it has status 200
and ends with `[DONE]`. More are sent at once than the engine has slots, so most of them wait in the queue. Afterwards
come the leases and open files that are left, and by how much the daemon has grown: since the first request, and since
the ten thousandth, or the middle one where there are fewer. What an allocator keeps it has by then; what grows after it
is a leak. The last line is the same as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import psutil
import uvloop

from benchmarks.load import Place, chat_request
from benchmarks.model import make_model
from benchmarks.report import percentile
from benchmarks.servers import Server, get, supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_SLOTS = 32
_END = b"data: [DONE]"
_LIMIT_S = 1800.0
_GROWN = 10_000  # requests after which the daemon has grown to its size
_WARM = 200  # requests before those that count: what they leave behind is not left by each


class _Short(asyncio.Protocol):
    """One request; `ended` is done when the server has closed the connection."""

    def __init__(self, request: bytes) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._head = self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keep how the answer begins and how it ends."""
        self._head = self._head or data[:15]
        self._tail = (self._tail + data)[-64:]

    def connection_lost(self, _error: Exception | None) -> None:
        """The answer is over."""
        if not self.ended.done():
            self.ended.set_result(None)

    def outcome(self) -> str:
        """`whole`, or what is wrong."""
        if not self._head.startswith(b"HTTP/1.1 200"):
            return self._head[9:12].decode("latin-1") or "no answer"
        return "whole" if _END in self._tail else "broken off"


async def _ask(
    place: Place, requests: int, at_once: int, answered: Callable[[int], None] = lambda _: None
) -> tuple[Counter[str], list[float]]:
    """Outcomes, and milliseconds of each request. answered: is told after each how many were."""
    outcomes: Counter[str] = Counter()
    times: list[float] = []
    request, left = chat_request(place, 2), iter(range(requests))

    async def caller() -> None:
        for _ in left:
            begun = time.perf_counter()
            _, call = await asyncio.get_running_loop().create_connection(
                lambda: _Short(request), "127.0.0.1", place.port
            )
            await call.ended
            times.append((time.perf_counter() - begun) * 1000)
            outcomes[call.outcome()] += 1
            answered(len(times))

    async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as callers:
        for _ in range(at_once):
            callers.create_task(caller())
    return outcomes, times


def measure(server: Server, requests: int, at_once: int) -> dict[str, object]:
    """What comes of so many requests, `at_once` of them at a time."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_ask(server.place, _WARM, at_once))
        process = psutil.Process(server.pid)
        files, memory = process.num_fds(), process.memory_info().rss
        grown, late = min(_GROWN, requests // 2), [memory]

        def look(count: int) -> None:
            if count == grown:
                late[0] = process.memory_info().rss

        begun = time.perf_counter()
        outcomes, times = runner.run(_ask(server.place, requests, at_once, look))
        seconds = time.perf_counter() - begun
    status = get(f"http://127.0.0.1:{server.place.port}/api/v1/models")["models"]
    return {
        "requests": requests,
        "at once": at_once,
        "lost": requests - outcomes["whole"],
        "outcomes": dict(outcomes),
        "per second": round(requests / seconds, 1),
        "p50 [ms]": round(percentile(times, 50), 1),
        "p99 [ms]": round(percentile(times, 99), 1),
        "longest [ms]": round(max(times), 1),
        "leases left": sum(model["leases"] + model["waiting"] for model in status),
        "files left": process.num_fds() - files,
        "growth [MiB]": _mebibytes(process.memory_info().rss - memory),
        f"since {grown:,} [MiB]": _mebibytes(process.memory_info().rss - late[0]),
    }


def _mebibytes(size: int) -> float:
    return round(size / (1 << 20), 1)


def main() -> int:
    """Run the benchmark; 1 if a request was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=256)
    parser.add_argument("--engine", type=Path)
    options = parser.parse_args()
    binary = locate(places(os.environ), os.environ, options.engine).path
    with tempfile.TemporaryDirectory(prefix="short-") as name:
        folder = Path(name)
        make_model(folder / "bench.gguf")
        with supervisor(binary, folder / "bench.gguf", folder, _SLOTS) as server:
            found = measure(server, options.requests, options.at_once)
    for what, value in found.items():
        print(f"{what:20} {value}")
    print(json.dumps(found))
    return 1 if found["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
