"""What clients notice of a take-over: 64 streams and 200 short requests a second, while the daemon is replaced again.

    .venv/bin/python -m benchmarks.takeover [--times N] [--streams N] [--rate N] [--engine PATH]

The engines are `benchmarks.paced`: ten events a second for each stream, and short answers at once.
The same load runs afterwards without a take-over, for as long; the ratios are to that. In the end the daemon is
stopped, and the time is told for which nobody is answered where a stop and a start stand in place of a take-over.

    longest wait     of a short request, from its first byte sent to its last one read
    longest gap      between two pieces of one stream
    resident         memory of the daemon's process after each take-over
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

_MIB = 1 << 20


@dataclass
class Seen:
    """What the clients have noticed. Times are seconds."""

    waits: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    events: int = 0

    def row(self, what: str) -> str:
        """Return a row of the table."""
        waits = sorted(self.waits)
        p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        return (
            f"| {what} | {len(waits)} | {len(self.errors)} | {1000 * p50:.0f} | {1000 * p99:.0f} | "
            f"{1000 * waits[-1]:.0f} | {1000 * max(self.gaps, default=0.0):.0f} | {self.events} |"
        )


class Load:
    """Clients of one daemon."""

    def __init__(self, daemon: RunningDaemon, streams: int, rate: float) -> None:
        host, port = daemon.url.removeprefix("http://").split(":")
        self._place = host, int(port)
        self._streams = streams
        self._rate = rate
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._over = False
        self.seen = Seen()

    async def run(self, during: Any) -> None:
        """Ask all the while that the coroutine runs."""
        streams = [asyncio.create_task(self._stream()) for _ in range(self._streams)]
        await asyncio.sleep(2)  # until all are answered
        self.seen = Seen()
        asking = asyncio.create_task(self._ask())
        try:
            await during
        finally:
            self._over = True
            await asking
            for one in streams:
                one.cancel()
            await asyncio.gather(*streams, return_exceptions=True)

    async def _stream(self) -> None:
        reader, writer = await asyncio.open_connection(*self._place)
        writer.write(_request("endless", stream=True))
        before = time.perf_counter()
        try:
            while piece := await reader.read(1 << 16):
                now = time.perf_counter()
                self.seen.gaps.append(now - before)
                self.seen.events += piece.count(b"data: ")
                before = now
                if b'"error"' in piece:
                    self.seen.errors.append(piece[:300].decode("utf-8", "replace"))
            self.seen.errors.append("a stream has ended")
        finally:
            writer.close()

    async def _ask(self) -> None:
        tasks, due = set(), time.perf_counter()
        while not self._over:
            tasks.add(task := asyncio.create_task(self._short()))
            task.add_done_callback(tasks.discard)
            due += 1 / self._rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await asyncio.gather(*tasks)

    async def _short(self) -> None:
        began = time.perf_counter()
        try:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._place)
            writer.write(_request("brief", stream=False))
            head = await reader.readuntil(b"\r\n\r\n")
            body = await _body(reader, head.lower())
        except (OSError, asyncio.IncompleteReadError) as error:
            self.seen.errors.append(repr(error))
            return
        self.seen.waits.append(time.perf_counter() - began)
        if b" 200 " not in head[:16]:
            self.seen.errors.append(body[:300].decode("utf-8", "replace"))
        if b"connection: close" in head.lower():
            writer.close()
        else:
            self._idle.append((reader, writer))


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return await reader.readexactly(int(line.split(b":")[1]))
    return await reader.readuntil(b"\r\n0\r\n\r\n")


def _request(model: str, *, stream: bool) -> bytes:
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "count"}]}
    text = json.dumps(body if stream else {**body, "max_tokens": 2}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


async def _take_over(daemon: RunningDaemon, times: int, sizes: list[float]) -> None:
    for _ in range(times):
        answer = await asyncio.to_thread(daemon.http.post, "/api/v1/restart")
        if answer.status_code != 200:
            raise SystemExit(answer.text)
        sizes.append(psutil.Process(daemon.pid).memory_info().rss / _MIB)
        await asyncio.sleep(1)


def main(argv: Sequence[str]) -> int:
    """Run it and print."""
    parser = argparse.ArgumentParser(description="What clients notice of a take-over.")
    parser.add_argument("--times", type=int, default=10, metavar="N", help="take-overs (default: 10)")
    parser.add_argument("--streams", type=int, default=64, metavar="N", help="(default: 64)")
    parser.add_argument("--rate", type=float, default=200, metavar="N", help="short requests a second (default: 200)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    arguments = parser.parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    command = [sys.executable, "-P", str(Path(__file__).with_name("paced.py")), "--socket", "${SOCKET}"]
    paced = {"source": "command", "command": command, "memory": {"CPU": "100m"}, "ready": "/"}
    models = {"endless": {**paced, "slots": arguments.streams}, "brief": {**paced, "slots": 64}}
    with scratch_home() as home, running_daemon(home, binary, {"models": models}) as daemon:
        daemon.load("endless")
        daemon.load("brief")
        asyncio.run(_measure(daemon, arguments))
        _stopped_and_started(daemon)
    return 0


async def _measure(daemon: RunningDaemon, arguments: argparse.Namespace) -> None:
    sizes = [psutil.Process(daemon.pid).memory_info().rss / _MIB]
    load = Load(daemon, arguments.streams, arguments.rate)
    began = time.perf_counter()
    await load.run(_take_over(daemon, arguments.times, sizes))
    seconds = time.perf_counter() - began
    alone = Load(daemon, arguments.streams, arguments.rate)
    await alone.run(asyncio.sleep(seconds))
    print("| | requests | errors | median wait [ms] | p99 | longest | longest gap of a stream [ms] | events |")
    print("|---|---|---|---|---|---|---|---|")
    print(alone.seen.row("without"))
    print(load.seen.row(f"{arguments.times} take-overs"))
    print(f"\nlongest wait, ratio: {max(load.seen.waits) / max(alone.seen.waits):.2f}")
    print(f"longest gap, ratio: {max(load.seen.gaps, default=0.0) / max(alone.seen.gaps, default=1.0):.2f}")
    print("resident [MiB]:", " ".join(f"{size:.0f}" for size in sizes))
    for error in (*load.seen.errors[:5], *alone.seen.errors[:5]):
        print("error:", error)


def _stopped_and_started(daemon: RunningDaemon) -> None:
    """Print for how long a stop and a start leave clients without an answer, loads of tiny models included."""
    began = time.perf_counter()
    daemon.process.terminate()
    daemon.process.wait()
    print(f"stopped alone: {time.perf_counter() - began:.1f} s without anybody, before a start and the loads")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
