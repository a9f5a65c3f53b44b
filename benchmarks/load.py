"""The load generator: a process of its own that is given one job at a time.

It is the same for every server under test and does as little as it can: raw sockets, no JSON, no HTTP beyond finding
`data:` in what arrives. Every request has a connection of its own, connecting included in its time.

CPU time of the relaying process is read here, at the very moments that open and close the window, from the kernel's
per-process clock (nanoseconds, ended threads included).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import psutil
import uvloop

_EVENT = b"data:"
_ENDLESS = 30_000  # tokens
_LIMIT_S = 120.0  # no job takes longer


@dataclass(frozen=True)
class Place:
    """Where a server listens: a TCP port of 127.0.0.1 or a Unix socket; `model` is what it calls the model.

    `key`: the API key to send; empty: none.
    """

    model: str
    port: int = 0
    socket: str = ""
    key: str = ""


@dataclass(frozen=True)
class StreamsJob:
    """So many streams at once for so long; `cpu_pid` is the process whose CPU time is wanted.

    `streams_beside` more go to `beside` all the while, unmeasured: they keep the engine busy, not the relay. `shape` is
    one of `SHAPES`.
    """

    place: Place
    cpu_pid: int
    streams: int
    seconds: float
    beside: Place
    streams_beside: int
    shape: str = "small"


@dataclass(frozen=True)
class FirstEventsJob:
    """So many short streams, one after another, from each place in turn.

    `cpu_pids` are the processes whose CPU time is wanted, one for each place; `shape` is one of `SHAPES`.
    """

    places: tuple[Place, ...]
    cpu_pids: tuple[int, ...]
    samples: int
    shape: str


@dataclass(frozen=True)
class EmbeddingsJob:
    """So many calls, `at_once` of them at a time."""

    place: Place
    calls: int
    at_once: int


@dataclass(frozen=True)
class FirstEventsResult:
    """Milliseconds from connecting to the first event, and CPU seconds of the process asked about, of all together."""

    times: list[float]
    cpu_seconds: float


Job = StreamsJob | FirstEventsJob | EmbeddingsJob


@dataclass(frozen=True)
class StreamsResult:
    """Events of the measured streams, seconds, CPU seconds of the process asked about."""

    events: int
    seconds: float
    cpu_seconds: float

    def __sub__(self, earlier: StreamsResult) -> StreamsResult:
        return StreamsResult(
            self.events - earlier.events, self.seconds - earlier.seconds, self.cpu_seconds - earlier.cpu_seconds
        )


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; on Linux exact to the nanosecond."""
    if platform.system() == "Linux":
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3): the scheduler's clock of a process
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _tool(number: int) -> dict[str, Any]:
    text = {"type": "string", "description": "A parameter, described as people describe theirs."}
    parameters = {"type": "object", "properties": {f"p{at}": text for at in range(6)}, "required": ["p0", "p1"]}
    says = "Does something that a model may want to have done. " * 6
    return {"type": "function", "function": {"name": f"tool_{number}", "description": says, "parameters": parameters}}


SHAPES: dict[str, dict[str, Any]] = {
    "small": {},
    "1 tool": {"tools": [_tool(0)]},
    "30 tools": {"tools": [_tool(number) for number in range(30)]},
    "100 KB": {"metadata": {"note": "x" * 100_000}},
    "1 MB": {"metadata": {"note": "x" * 1_000_000}},
}
"""Fields of a request besides its one short message; engines do not look at `metadata`."""


def chat_request(place: Place, max_tokens: int, shape: str = "small") -> bytes:
    """A streaming chat request of which the reply has exactly so many tokens."""
    body = {
        "model": place.model,
        "messages": [{"role": "user", "content": "endless"}],
        "stream": True,
        "max_tokens": max_tokens,
        **SHAPES[shape],
    }
    return _post("/v1/chat/completions", body, place.key)


def embedding_request(place: Place) -> bytes:
    """One short text."""
    return _post("/v1/embeddings", {"model": place.model, "input": "How long is a piece of string?"}, place.key)


def _post(path: str, body: dict[str, Any], key: str) -> bytes:
    content = json.dumps(body).encode()
    proof = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"{proof}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


class Exchange(asyncio.Protocol):
    """One request: counts the events of the answer; `ended` is done when the server has closed the connection."""

    def __init__(self, request: bytes) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_event = 0.0  # perf_counter()
        self.events = 0
        self.head = b""
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count; an event's start may be cut in two."""
        if not self.head:
            self.head = data[:64]
        found = (self._rest + data).count(_EVENT)
        if found and not self.events:
            self.first_event = time.perf_counter()
        self.events += found
        self._rest = data[1 - len(_EVENT) :]

    def connection_lost(self, _error: Exception | None) -> None:
        """The answer is over, or broke off, which shows in what was counted."""
        if not self.ended.done():
            self.ended.set_result(None)

    def leave(self) -> None:
        """Close the connection from this side."""
        if self._transport is not None:
            self._transport.abort()

    def ok(self) -> bool:
        """Whether the server said 200."""
        return self.head.startswith(b"HTTP/1.1 200")


async def exchange(place: Place, request: bytes) -> Exchange:
    """Connect and send."""
    loop = asyncio.get_running_loop()
    if place.socket:
        _, protocol = await loop.create_unix_connection(lambda: Exchange(request), place.socket)
    else:
        _, protocol = await loop.create_connection(lambda: Exchange(request), "127.0.0.1", place.port)
    return protocol


async def run_streams(job: StreamsJob) -> StreamsResult:
    """Start streams that have no end, measure for some seconds from the moment when all are under way, leave."""
    everyone: list[Exchange] = []
    try:
        for place, count, shape in ((job.beside, job.streams_beside, "small"), (job.place, job.streams, job.shape)):
            everyone += [await exchange(place, chat_request(place, _ENDLESS, shape)) for _ in range(count)]
        while not all(stream.events for stream in everyone):
            _check_running(everyone)
            await asyncio.sleep(0.002)
        mine = everyone[job.streams_beside :]
        begun = _reading(mine, job.cpu_pid)
        await asyncio.sleep(job.seconds)
        window = _reading(mine, job.cpu_pid) - begun
        _check_running(everyone)
    finally:
        for stream in everyone:
            stream.leave()
    return window


def _reading(streams: Sequence[Exchange], cpu_pid: int) -> StreamsResult:
    return StreamsResult(sum(stream.events for stream in streams), time.perf_counter(), cpu_seconds(cpu_pid))


def _check_running(streams: Sequence[Exchange]) -> None:
    for stream in streams:
        if stream.ended.done() or (stream.head and not stream.ok()):
            raise RuntimeError(f"a stream ended after {stream.events} events; it began with {stream.head!r}")


async def first_events(job: FirstEventsJob) -> list[FirstEventsResult]:
    """The first events of short streams, for each place; the places take turns, and one whose turn is not is idle."""
    found: list[list[float]] = [[] for _ in job.places]
    requests = [chat_request(place, 2, job.shape) for place in job.places]
    spent = [cpu_seconds(pid) for pid in job.cpu_pids]
    for _ in range(job.samples):
        for place, request, times in zip(job.places, requests, found, strict=True):
            begun = time.perf_counter()
            stream = await exchange(place, request)
            await stream.ended
            if not stream.events:
                raise RuntimeError(f"a short stream was answered with {stream.head!r}")
            times.append((stream.first_event - begun) * 1000)
    return [
        FirstEventsResult(times, cpu_seconds(pid) - before)
        for times, pid, before in zip(found, job.cpu_pids, spent, strict=True)
    ]


async def embeddings(job: EmbeddingsJob) -> float:
    """Calls per second."""
    request = embedding_request(job.place)

    async def caller(count: int) -> None:
        for _ in range(count):
            call = await exchange(job.place, request)
            await call.ended
            if not call.ok():
                raise RuntimeError(f"an embedding was answered with {call.head!r}")

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as callers:
        for _ in range(job.at_once):
            callers.create_task(caller(job.calls // job.at_once))
    return job.calls / (time.perf_counter() - begun)


class Generator:
    """The load generator's process, from the side of the one who gives it jobs."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def streams(self, job: StreamsJob) -> StreamsResult:
        """See `run_streams`."""
        return cast(StreamsResult, self._ask(job))

    def first_events(self, job: FirstEventsJob) -> list[FirstEventsResult]:
        """See `first_events`."""
        return cast(list[FirstEventsResult], self._ask(job))

    def embeddings(self, job: EmbeddingsJob) -> float:
        """See `embeddings`."""
        return cast(float, self._ask(job))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()

    def _ask(self, job: Job) -> object:
        self._pipe.send(job)
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(pipe: Connection[object, Job]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while True:
            job = pipe.recv()
            try:
                pipe.send(runner.run(_run(job)))
            except (RuntimeError, OSError, TimeoutError, ExceptionGroup) as error:
                pipe.send(error)


async def _run(job: Job) -> object:
    async with asyncio.timeout(_LIMIT_S):
        match job:
            case StreamsJob():
                return await run_streams(job)
            case FirstEventsJob():
                return await first_events(job)
            case EmbeddingsJob():
                return await embeddings(job)
