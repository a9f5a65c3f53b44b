"""Fetch what the address of a medium names, from nowhere but where a client may have us connect to.

Every name is looked up here, every address of it is checked, and the connection goes to an address that was checked: a
name that is looked up once more may lead elsewhere by then. A redirect is a new address, for which all of it is done
again. What arrives is encoded piece by piece, so that no step takes long on the loop that relays.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

import httpx
import structlog

from supervisor import __version__
from supervisor.core.requests.media import (
    Address,
    FetchRules,
    Place,
    address_of,
    check_scheme,
    may_be_reached,
    media_type,
)
from supervisor.errors import MediaNotFetched, MediaTooLarge, MediaUrlRefused
from supervisor.system.networks import own_networks

_log = structlog.get_logger()

_SPACE = re.compile(r"[\x00-\x20\x7f]")
_LAST_PORT = 65_535
_REDIRECTS = 5
_ADDRESSES = 3  # of one name that are tried
_PIECE = 3 << 14  # bytes that are encoded at a time
_SMALLEST = 256  # bytes of a piece, on the average: each costs a step of its own
_FEW = 1024  # pieces that may be smaller
_lookups = threading.BoundedSemaphore(64)  # names that are being looked up
_AGENT = f"llama-supervisor/{__version__}"
_HEADERS = {"user-agent": _AGENT, "accept": "image/*, audio/*, video/*", "accept-encoding": "identity"}

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a host, as texts. Raises OSError, UnicodeError."""


async def resolved(host: str) -> Sequence[str]:
    """Return the addresses of a host, in the order in which the system would try them.

    In a thread of its own, for which nothing waits: a name whose server is silent may keep it for half a minute, also
    when nobody wants to know any more. Raise OSError; BlockingIOError where too many go on.
    """
    if not _lookups.acquire(blocking=False):
        raise BlockingIOError
    answer = Future[Sequence[str]]()
    threading.Thread(target=_look_up, args=(host, answer), name="lookup", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _look_up(host: str, answer: Future[Sequence[str]]) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        outcome = partial(answer.set_result, tuple(dict.fromkeys(str(place[0]) for *_, place in found)))
    except (OSError, UnicodeError) as error:
        outcome = partial(answer.set_exception, error)
    finally:
        _lookups.release()
    with suppress(InvalidStateError):  # nobody waits any more
        outcome()


@cache
def trusted() -> ssl.SSLContext:
    """Return the authorities whose certificates count: the usual ones, or those of `SSL_CERT_FILE`. Blocks."""
    return httpx.create_ssl_context()


@dataclass(frozen=True)
class _Fetched:
    """What came: the response's type, and the body in base64."""

    content_type: str
    text: bytes


@dataclass(frozen=True)
class Fetch:
    """Fetches one medium after the other for a request. `trust`: whose certificates count; may block."""

    rules: FetchRules
    resolve: Resolve = resolved
    trust: Callable[[], ssl.SSLContext] = trusted

    async def data_url(self, place: Place) -> bytes:
        """Return what an address names, as a `data:` URL. Raise MediaUrlRefused, MediaNotFetched, MediaTooLarge."""
        try:
            async with asyncio.timeout(self.rules.seconds):
                found = await self._followed(place.text.strip(), place.shown)
        except TimeoutError:
            raise _failed(place.shown, f"it took more than {self.rules.seconds:g} s") from None
        kind = media_type(found.content_type, place.kind)
        if kind is None:
            raise _failed(place.shown, "what is there is no image, sound or video")
        return b"data:%b;base64,%b" % (kind.encode(), found.text)

    async def _followed(self, address: str, where: str) -> _Fetched:
        for _ in range(_REDIRECTS + 1):
            check_scheme(self.rules, address, where)
            url = _parsed(address, where)
            found = await self._from_one_of(await self._open_addresses(url, where), url, where)
            if isinstance(found, _Fetched):
                _log.info("media_fetched", host=url.host, characters=len(found.text))
                return found
            address = found
        raise _failed(where, f"it redirects more than {_REDIRECTS} times")

    async def _open_addresses(self, url: httpx.URL, where: str) -> Sequence[Address]:
        try:
            found = [address_of(one) for one in await self.resolve(url.raw_host.decode("ascii").strip("[]"))]
        except BlockingIOError:
            raise _failed(where, "too many names are being looked up") from None
        except (OSError, ValueError):
            raise _failed(where, "there is no such host") from None
        own = await asyncio.to_thread(own_networks)
        if not found or not all(may_be_reached(self.rules, one, own) for one in found):
            raise MediaUrlRefused(
                "The address leads into this machine's network, not to a public one. Send the medium as a data: URL, "
                "or have the network added to server.fetch_allow.",
                param=where,
            )
        return found[:_ADDRESSES]

    async def _from_one_of(self, addresses: Sequence[Address], url: httpx.URL, where: str) -> _Fetched | str:
        last = _failed(where, "nothing answers there")
        for one in addresses:
            try:
                return await self._from(one, url, where)
            except httpx.ConnectError:
                continue
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
                raise _failed(where, f"the connection failed ({type(error).__name__})") from None
        raise last

    async def _from(self, address: Address, url: httpx.URL, where: str) -> _Fetched | str:
        """Return what the server at this address answers; the next address where it redirects."""
        verify = await asyncio.to_thread(self.trust) if url.scheme == "https" else False
        host = url.raw_host.decode("ascii")
        headers = {**_HEADERS, "host": url.netloc.decode("ascii")}
        timeout = httpx.Timeout(self.rules.seconds)
        async with (
            httpx.AsyncClient(verify=verify, trust_env=False, timeout=timeout) as client,
            client.stream(
                "GET", url.copy_with(host=str(address)), headers=headers, extensions={"sni_hostname": host}
            ) as answer,
        ):
            if answer.has_redirect_location:
                return str(url.join(answer.headers["location"]))
            if answer.status_code != httpx.codes.OK:
                raise _failed(where, f"its server answers {answer.status_code}")
            if answer.headers.get("content-encoding", "identity").lower() != "identity":
                raise _failed(where, "its server sends it compressed")
            return _Fetched(answer.headers.get("content-type", ""), await self._encoded(answer, where))

    async def _encoded(self, answer: httpx.Response, where: str) -> bytes:
        """Return the body in base64, within the limit."""
        texts: list[bytes] = []
        size, count, rest = 0, 0, bytearray()
        async for piece in answer.aiter_raw():
            size += len(piece)
            count += 1
            if count > _FEW + size // _SMALLEST:
                raise _failed(where, "its server sends it in too many small pieces")
            if size > self.rules.most:
                raise MediaTooLarge(
                    f"There are more than {self.rules.most >> 20} MiB at the address (server.fetch_max_mib).",
                    param=where,
                )
            rest += piece
            if len(rest) >= _PIECE:
                whole = len(rest) - len(rest) % 3
                texts.append(base64.b64encode(rest[:whole]))
                del rest[:whole]
        return b"".join((*texts, base64.b64encode(rest)))


def _parsed(address: str, where: str) -> httpx.URL:
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        raise MediaUrlRefused("The address of the medium is none.", param=where) from None
    port = 1 if url.port is None else url.port
    if _SPACE.search(address) or not url.raw_host or url.userinfo or not 0 < port <= _LAST_PORT:
        raise MediaUrlRefused("The address of the medium is none, or has a user or a password in it.", param=where)
    return url


def _failed(where: str, why: str) -> MediaNotFetched:
    return MediaNotFetched(f"The medium could not be fetched: {why}. Send it as a data: URL.", param=where)
