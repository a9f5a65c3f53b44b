"""What hostile and heavy clients do to everybody else: this program, llama-server's router, and an engine alone.

    .venv/bin/python -m benchmarks.hostile [--quick] [--rounds N] [--engine PATH]

One client follows a stream that never ends and notes when something arrives. Meanwhile bodies of JSON arrive, or
connections that never finish their request. The table goes to stdout, and after it one line of JSON.

    gap      the longest time without an event in a round; `at rest` is what this machine does to the stream anyway
    memory   by how much the process grew at most, as a share of the bodies that were on their way
    /health  of a client with a connection of its own, beside the others; a request that has no answer counts as 5 s

`images` are chats with one image of that size (the engine refuses them: the model has no eyes), `arrays` is
`[[],[],…]` in a field of a chat. For an engine alone all of it is its own; for the other two it is what the process
does that clients talk to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import uvloop

from benchmarks.load import Exchange, Place, chat_request
from benchmarks.model import make_model
from benchmarks.report import Report
from benchmarks.servers import MODEL, Server, direct, router, supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_MB = 1_000_000
_ENDLESS = 1_000_000  # tokens
_SLOTS = 8
_PATIENCE_S = 5.0  # for an answer to /health
_ANSWER_S = 120.0  # for an answer to a body
_HALF_OPEN = 1000
_HEADER = b"X-Filler: " + b"a" * 4000 + b"\r\n"


@dataclass(frozen=True)
class Heavy:
    """Bodies that arrive at once: `count` times `make(size)`."""

    name: str
    make: Callable[[int], bytes]
    size: int
    count: int


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    parser = argparse.ArgumentParser(description="What hostile and heavy clients do to everybody else.")
    parser.add_argument("--quick", action="store_true", help="a smoke run of some seconds")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    arguments = parser.parse_args(argv)
    _allow_many_files()
    unit = _MB // 10 if arguments.quick else _MB
    loads = (
        Heavy("5 images of 20 MB", image, 20 * unit, 5),
        Heavy("1 image of 100 MB", image, 100 * unit, 1),
        Heavy("arrays of 40 MB", arrays, 40 * unit, 1),
    )
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    report = Report()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder, ExitStack() as stack:
        model = Path(folder) / "bench.gguf"
        make_model(model)
        started = (start(binary, model, Path(folder), _SLOTS) for start in (direct, supervisor, router))
        servers = [stack.enter_context(server) for server in started]
        for number in range(1 if arguments.quick else arguments.rounds):
            print(f"round {number + 1}", file=sys.stderr, flush=True)
            for server in servers:
                _round(server, loads, report, quick=arguments.quick)
    print(report.table())
    print(json.dumps(report.figures()))
    return 0


def image(size: int) -> bytes:
    """A chat with one image of so many bytes."""
    url = "data:image/png;base64," + "iVBORw0K" * (size // 8)
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}]}).encode()


def arrays(size: int) -> bytes:
    """A chat with so many bytes of empty arrays."""
    return b'{"model": "%b", "x": [%b[]]}' % (MODEL.encode(), b"[]," * (size // 3))


def _round(server: Server, loads: Sequence[Heavy], report: Report, *, quick: bool) -> None:
    with _watched(server) as watch:
        begun = time.monotonic()
        time.sleep(0.3 if quick else 3.0)
        report.add("gap at rest", "ms", server.name, watch.longest_gap(begun))
    for load in loads:
        body = load.make(load.size)
        with _watched(server) as watch, _memory(server.pid) as grown:
            begun = time.monotonic()
            with ThreadPoolExecutor(load.count) as senders:
                list(senders.map(lambda _: _post(server.place, body), range(load.count)))  # noqa: B023 - done by then
            gap = watch.longest_gap(begun)
        report.add(f"gap, {load.name}", "ms", server.name, gap)
        report.add(f"memory, {load.name}", "× bodies", server.name, max(grown) / len(body) / load.count)
    count = 50 if quick else _HALF_OPEN
    with _half_open(server.place, count) as taken:
        _health(server, f"/health beside {count} half-open connections", report)
        report.add("half-open connections taken", "", server.name, taken)
    with _endless_headers(server.place):
        _health(server, "/health beside endless headers", report)


# a stream, followed by a process of its own


class _Watch:
    """The other side of `_follow`."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe

    def longest_gap(self, begun: float) -> float:
        """Milliseconds without an event at most, from a moment on (monotonic seconds) until now."""
        ended = time.monotonic()
        self._pipe.send("stop")
        arrived: list[float] | str = self._pipe.recv()
        if isinstance(arrived, str):
            raise RuntimeError(arrived)
        times = [begun, *(at for at in arrived if begun < at < ended), ended]
        return max(after - before for before, after in pairwise(times)) * 1000


class _Timed(Exchange):
    """Notes when something arrives; `begun` is done with the first event."""

    def __init__(self, request: bytes) -> None:
        super().__init__(request)
        self.times: list[float] = []
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Count and note."""
        super().data_received(data)
        self.times.append(time.monotonic())
        if self.events and not self.begun.done():
            self.begun.set_result(None)


@contextmanager
def _watched(server: Server) -> Iterator[_Watch]:
    """A stream through the server that has begun, within the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_follow, args=(theirs, server.place), daemon=True)
    process.start()
    try:
        if (said := ours.recv()) != "begun":
            raise RuntimeError(said)
        yield _Watch(ours)
    finally:
        process.kill()
        process.join()


def _follow(pipe: Connection[Any, Any], place: Place) -> None:
    async def follow() -> None:
        loop = asyncio.get_running_loop()
        made = loop.create_connection(lambda: _Timed(chat_request(place, _ENDLESS)), "127.0.0.1", place.port)
        _, stream = await made
        await asyncio.wait((stream.begun, stream.ended), return_when=asyncio.FIRST_COMPLETED)
        pipe.send(f"the stream ended; it began with {stream.head!r}" if stream.ended.done() else "begun")
        await loop.run_in_executor(None, pipe.recv)
        pipe.send("the stream broke off" if stream.ended.done() else stream.times)
        await stream.ended

    uvloop.run(follow())


# those who disturb it


def _post(place: Place, body: bytes) -> None:
    """Send a body and wait for the answer, whatever it is."""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", place.port), _ANSWER_S) as client, contextlib.suppress(OSError):
        client.sendall(head.encode())
        client.sendall(body)  # breaks off where it is refused before its end
        while client.recv(1 << 16):
            pass


@contextmanager
def _half_open(place: Place, count: int) -> Iterator[int]:
    """So many connections that never finish their head, within the block; how many there are."""
    with ExitStack() as stack:
        for number in range(count):
            try:
                client = stack.enter_context(socket.create_connection(("127.0.0.1", place.port), 1))
                client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            except OSError:
                yield number
                return
        yield count


@contextmanager
def _endless_headers(place: Place) -> Iterator[None]:
    """A client that sends headers for as long as they are taken, within the block."""
    over = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", place.port), 1) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            while not over.is_set():
                client.sendall(_HEADER)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


# what is read of it


def _health(server: Server, measure: str, report: Report) -> None:
    times: list[float] = []
    while len(times) < 20 and times.count(_PATIENCE_S * 1000) < 3:  # one that is out of order stays so
        times.append(_answered_after(server.place))
    report.add(f"{measure}, p50", "ms", server.name, statistics.median(times))
    report.add(f"{measure}, longest", "ms", server.name, max(times))


def _answered_after(place: Place) -> float:
    begun = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", place.port), _PATIENCE_S) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            if b"200" not in client.recv(64):
                return _PATIENCE_S * 1000
    except OSError:
        return _PATIENCE_S * 1000
    return (time.monotonic() - begun) * 1000


@contextmanager
def _memory(pid: int) -> Iterator[list[int]]:
    """By how many bytes a process has grown since the block began, looked at every few milliseconds."""
    process, over = psutil.Process(pid), threading.Event()
    before = process.memory_info().rss
    grown = [0]

    def look() -> None:
        while not over.wait(0.005):
            grown.append(process.memory_info().rss - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield grown
    finally:
        over.set()
        looking.join()


def _allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
