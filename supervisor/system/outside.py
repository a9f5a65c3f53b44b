"""Requests to the network: no answer is larger, slower or more roundabout than its limits allow."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

import httpx

from supervisor.system.cookies import NoCookies
from supervisor.system.reach import leads_inside

_REDIRECTS = 10
_REDIRECT_BYTES = 1 << 16
_KEPT_UP = 1 << 16
_MAX_QUOTED = 200  # characters of a host's name, repeated in a message
_MIB = 1 << 20
_HIGHEST_PORT = (1 << 16) - 1
_START = "supervisor.start"  # in a request's extensions, which go along with redirects: the host that was asked first
_Result = TypeVar("_Result")


class OutOfBounds(Exception):
    """An answer goes beyond a limit; the text is what the server does, as half a sentence."""


class TooSlow(OutOfBounds):
    """The answer did not come in the time there was for it."""


@dataclass(frozen=True)
class Limits:
    """`size`: bytes of an answer's body. `seconds`: from the request to its last byte."""

    size: int
    seconds: float


@dataclass(frozen=True)
class Answer:
    """A whole answer; `url`: where it came from after redirects."""

    status: int
    headers: httpx.Headers
    body: bytes
    url: httpx.URL


Take = Callable[[httpx.Response, bytes], bool]
"""Takes a piece of a body; whether it wants more."""


def bounded_client(timeout: httpx.Timeout, verify: ssl.SSLContext | bool = True) -> httpx.AsyncClient:
    """Make a client that follows few redirects, reads little of each and keeps no cookie. timeout: for one step."""
    return httpx.AsyncClient(
        verify=verify,
        timeout=timeout,
        cookies=NoCookies(),
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        event_hooks={"request": [_check_way], "response": [_bound_redirect]},
    )


async def get(client: httpx.AsyncClient, url: str, limits: Limits, headers: Mapping[str, str]) -> Answer:
    """Fetch a whole answer, whatever its status. Raises OutOfBounds, and what httpx does."""
    body = bytearray()

    def take(_: httpx.Response, piece: bytes) -> bool:
        body.extend(piece)
        if len(body) > limits.size:
            raise OutOfBounds(f"answers with more than {limits.size / _MIB:.0f} MiB")
        return True

    answer = await read(client, url, take, limits.seconds, headers)
    return Answer(answer.status_code, answer.headers, bytes(body), answer.url)


async def read(
    client: httpx.AsyncClient, url: str, take: Take, seconds: float, headers: Mapping[str, str]
) -> httpx.Response:
    """Hand the pieces of an answer's body to `take` until it wants no more; the answer, closed.

    Raises OutOfBounds, and what httpx does.
    """
    try:
        async with asyncio.timeout(seconds), asked(client, url, headers) as answer:
            await _hand_over(answer, take)
            return answer
    except TimeoutError:
        raise TooSlow(f"was not done with its answer after {seconds:.0f} s") from None


@asynccontextmanager
async def asked(
    client: httpx.AsyncClient, url: str, headers: Mapping[str, str], seconds: float | None = None
) -> AsyncIterator[httpx.Response]:
    """Open an answer, not compressed; its head has to come in `seconds`. Raises OutOfBounds, and what httpx does."""
    request = client.build_request(
        "GET", url, headers={**headers, "Accept-Encoding": "identity"}, extensions={_START: _host(httpx.URL(url))}
    )
    try:
        async with asyncio.timeout(seconds):
            answer = await client.send(request, stream=True)
    except httpx.TooManyRedirects:
        raise OutOfBounds(f"sends from one address to another, more than {_REDIRECTS} times") from None
    except UnicodeError:  # of the library that reads such names
        raise OutOfBounds("sends on to an address whose name is none") from None
    except TimeoutError:
        raise TooSlow(f"did not begin its answer in {seconds:.0f} s") from None
    async with aclosing(answer):
        coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in {"", "identity"}:
            raise OutOfBounds(f"compresses its answer ({coding[:20]}) although it was asked not to")
        yield answer


async def keeping_up(answer: httpx.Response, patience: float) -> AsyncIterator[bytes]:
    """Yield the pieces of a long body. Raises TooSlow where fewer than 64 KiB come in `patience` seconds."""
    loop = asyncio.get_running_loop()
    arrived, until = 0, loop.time() + patience
    async with _pieces(answer) as pieces:
        while True:
            try:
                async with asyncio.timeout_at(until):
                    piece = await anext(pieces, None)
            except TimeoutError:
                raise TooSlow(f"sends less than {_KEPT_UP >> 10} KiB in {patience:.0f} s") from None
            if piece is None:
                return
            arrived += len(piece)
            if arrived >= _KEPT_UP:
                arrived, until = 0, loop.time() + patience
            yield piece


def _pieces(answer: httpx.Response) -> aclosing[AsyncGenerator[bytes]]:
    """Yield the pieces of a body as they arrive; let go of it at once when nobody wants more."""
    return aclosing(cast(AsyncGenerator[bytes], answer.aiter_raw()))


async def _hand_over(answer: httpx.Response, take: Take) -> None:
    async with _pieces(answer) as pieces:
        async for piece in pieces:
            if not take(answer, piece):
                return


async def _check_way(request: httpx.Request) -> None:
    """Raise OutOfBounds where there is no such address, or a redirect leads to what the server could not reach."""
    start, target = request.extensions.get(_START), _host(request.url)
    if not 0 <= (request.url.port or 0) <= _HIGHEST_PORT:  # httpx takes any number, and the system's own error is none
        raise OutOfBounds(f"names port {request.url.port} of {target[:_MAX_QUOTED]}, which is none")
    if isinstance(start, str) and start != target and await asyncio.to_thread(leads_inside, start, target):
        raise OutOfBounds(f"sends on to {target}, which is inside this network or this machine")


def _host(url: httpx.URL) -> str:
    """Return the host as it is looked up and connected to."""
    return url.raw_host.decode("ascii")


async def _bound_redirect(answer: httpx.Response) -> None:
    if answer.has_redirect_location and isinstance(answer.stream, httpx.AsyncByteStream):
        answer.stream = _Bounded(answer.stream, _REDIRECT_BYTES)


class _Bounded(httpx.AsyncByteStream):
    """The beginning of a stream, and an error where it goes on."""

    def __init__(self, stream: httpx.AsyncByteStream, size: int) -> None:
        self._stream = stream
        self._left = size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise OutOfBounds("sends a redirect that is itself long")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class LoopThread:
    """An event loop in a thread of its own, for those who wait in threads; it begins when it is first needed.

    Once it is closed, whoever waits, or would, gets `concurrent.futures.CancelledError`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[object, object, _Result]) -> _Result:
        """Wait for a coroutine; whoever is interrupted meanwhile cancels it."""
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._started())
        except BaseException:
            work.close()
            raise
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def close(self, last: Callable[[], Coroutine[object, object, None]] | None = None) -> None:
        """Cancel what is waited for, do a `last` thing, and end it; harmless when it never began."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            self._closed = True
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancelled_others(last), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise CancelledError
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="outside", daemon=True)
                self._thread.start()
            return self._loop


async def _cancelled_others(last: Callable[[], Coroutine[object, object, None]] | None) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if last is not None:
        await last()
