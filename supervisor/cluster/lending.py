"""Files of models for other nodes: contents of the hub's cache by their SHA-256, and what there is of a repository.

A content is read in threads beside the loop that relays, and sent in pieces that hold that loop up for a fraction of a
millisecond each. Nothing but the contents of the cache is reachable here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar
from urllib.parse import parse_qs

import structlog
from starlette.types import Receive, Scope, Send

from supervisor.core.cluster.ranges import NotSatisfiable, Range, range_asked
from supervisor.core.repository.forms import is_plain_path, is_repository, is_sha256
from supervisor.errors import FileNotHere, LendingFull, RangeNotSatisfiable
from supervisor.hub.cachedir import HubCache
from supervisor.hub.contents import open_content
from supervisor.hub.listing import MAIN, as_listing
from supervisor.proxy.asgi import ClientGone, Responder, while_connected
from supervisor.proxy.elsewhere import PEER
from supervisor.proxy.exchange import transport_of

_log = structlog.get_logger()

LENT: Final = ("/cluster/blobs/", "/cluster/repositories/")
"""The beginnings of the paths that are answered here."""

_MOST_AT_ONCE: Final = 4
_MOST_WAITING: Final = 64
_PIECE: Final = 1 << 18
_TAKEN_S: Final = 30.0  # in which a node has to take a piece
_AGAIN_S: Final = 1.0
_MOST_LISTED: Final = 2 << 20
_Found = TypeVar("_Found")


class Lending:
    """What this node lends.

    Args:
        cache: the hub's cache.
        most: how many contents are sent at once, to one node at most half as many.
        patience: seconds in which a piece has to be taken.
    """

    def __init__(self, cache: HubCache, most: int = _MOST_AT_ONCE, patience: float = _TAKEN_S) -> None:
        self._cache = cache
        self._most = most
        self._patience = patience
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="lending")
        self._asked = 0
        self._lent: dict[asyncio.Task[object], str] = {}

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a node's GET or HEAD. Raises FileNotHere, RangeNotSatisfiable, LendingFull."""
        blobs, repositories = LENT
        path, responder = scope["path"], Responder(send)
        if path.startswith(blobs) and is_sha256(name := path.removeprefix(blobs)):
            await self._content(scope, receive, responder, name)
        elif path.startswith(repositories) and scope["method"] == "GET":
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            found = await self._listing(path.removeprefix(repositories), (query.get("revision") or [MAIN])[0])
            await responder.whole(200, found)
        else:
            raise FileNotHere("Files are lent by their SHA-256, in 64 lower-case hex digits, and in no other way.")

    def disown(self) -> None:
        """In a copy of this process: send nothing more, as its threads are not here. Who asked goes on elsewhere."""
        for task in self._lent:
            task.cancel()

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # a content

    async def _content(self, scope: Scope, receive: Receive, responder: Responder, sha256: str) -> None:
        task = asyncio.current_task()
        assert task is not None  # a request runs in a task
        if scope["method"] == "GET":
            self._take_place(task, str(scope.get(PEER)))
        try:
            found = await self._aside(open_content, self._cache.folder, sha256)
            if found is None:
                raise FileNotHere("This node has no such file.")
            reader = _Reader(self._threads, found[0])
            try:
                with suppress(ClientGone):
                    work = self._sent(scope, responder, sha256, reader, found[1])
                    await while_connected(scope, receive, work)
            except (OSError, TimeoutError) as error:
                _log.warning("file_not_lent", node=scope.get(PEER), sha256=sha256, reason=str(error) or "it is slow")
                await _hang_up(scope, receive)
            finally:
                reader.close()
        finally:
            self._lent.pop(task, None)

    def _take_place(self, task: asyncio.Task[object], node: str) -> None:
        """Take one of the places for contents that are sent. Raises LendingFull."""
        of_it = sum(one == node for one in self._lent.values())
        if len(self._lent) >= self._most or of_it >= max(1, self._most // 2):
            raise _full()
        self._lent[task] = node

    async def _sent(self, scope: Scope, responder: Responder, sha256: str, reader: _Reader, size: int) -> None:
        headers = {bytes(name): value.decode("latin-1") for name, value in scope["headers"]}
        etag = f'"{sha256}"'
        wanted = headers.get(b"range") if headers.get(b"if-range", etag) == etag else None
        try:
            part = range_asked(wanted, size)
        except NotSatisfiable:
            raise RangeNotSatisfiable(f"There are no such bytes: the file has {size}.", size) from None
        said = [
            (b"content-type", b"application/octet-stream"),
            (b"accept-ranges", b"bytes"),
            (b"etag", etag.encode()),
            (b"content-length", str(size if part is None else part.length).encode()),
        ]
        if part is not None:
            said.append((b"content-range", part.told().encode()))
        await responder.start(200 if part is None else 206, said)
        if scope["method"] == "GET" and size:
            await self._pieces(responder, reader, part or Range(0, size - 1, size))
        await responder.end()

    async def _pieces(self, responder: Responder, reader: _Reader, part: Range) -> None:
        """Send the bytes of a range; the next piece is read while one is on its way. Raises OSError, TimeoutError."""
        place, end = part.first, part.last + 1
        reader.begin(place, min(_PIECE, end - place))
        while place < end:
            piece = await reader.read()
            if not piece:
                raise OSError("the file has become shorter while it was sent")
            place += len(piece)
            if place < end:
                reader.begin(place, min(_PIECE, end - place))
            async with asyncio.timeout(self._patience):
                await responder.write(piece)

    # a repository

    async def _listing(self, repo: str, revision: str) -> bytes:
        if not (is_repository(repo) and is_plain_path(revision)):
            raise FileNotHere("This is no repository of a hub.")
        there = await self._aside(self._cache.repositories, repo, revision)
        if not there:
            raise FileNotHere(f"This node has nothing of {repo}.")
        said = json.dumps(as_listing(there[0])).encode()
        if len(said) > _MOST_LISTED:
            raise FileNotHere(f"This node has more of {repo} than it tells.")
        return said

    async def _aside(self, work: Callable[..., _Found], *args: object) -> _Found:
        """Return what a function gives that reads the disk. Raises LendingFull, FileNotHere."""
        if self._asked >= _MOST_WAITING:
            raise _full()
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
        except OSError as error:
            raise FileNotHere(f"The cache of this node cannot be read: {error.strerror}.") from None
        finally:
            self._asked -= 1


class _Reader:
    """A file's descriptor, read ahead in a thread by one piece."""

    def __init__(self, threads: ThreadPoolExecutor, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor
        self._ahead: asyncio.Future[bytes] | None = None

    def begin(self, place: int, length: int) -> None:
        """Begin to read a piece."""
        loop = asyncio.get_running_loop()
        self._ahead = loop.run_in_executor(self._threads, os.pread, self._descriptor, length, place)

    async def read(self) -> bytes:
        """Return the piece that was begun. Raises OSError."""
        assert self._ahead is not None  # begun
        return await asyncio.shield(self._ahead)

    def close(self) -> None:
        """Close the file, once no thread reads it any more."""
        if self._ahead is None or self._ahead.done():
            os.close(self._descriptor)
        else:
            self._ahead.add_done_callback(self._over)

    def _over(self, ahead: asyncio.Future[bytes]) -> None:
        if not ahead.cancelled():
            ahead.exception()  # nobody else looks at it
        os.close(self._descriptor)


async def _hang_up(scope: Scope, receive: Receive) -> None:
    """Close the connection of an answer that cannot be completed."""
    transport = transport_of(scope)
    if transport is not None:
        transport.abort()
        while (await receive())["type"] != "http.disconnect":
            pass


def _full() -> LendingFull:
    return LendingFull("As many files are being sent as may be at once; ask again.", retry_after=_AGAIN_S)
