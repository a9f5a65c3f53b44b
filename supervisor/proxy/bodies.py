"""Read the bodies of clients within limits: small ones parsed at once, large ones only as far as needed.

A large body lies in a mapping of memory of its own: it takes what has arrived and not more, and goes back to the system
with the request. It is read while it arrives (`core/requests/outliner.py`), so that no step takes long on the loop that
relays; what is left of it to be parsed is small, and parsed in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import mmap
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from starlette.types import Receive, Scope

from supervisor.core.requests.affinity import CHARACTERS
from supervisor.core.requests.forms import FormOutline, FormReader, boundary_of
from supervisor.core.requests.outline import Outline, Payload, of_small
from supervisor.core.requests.outliner import Outliner
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import BodiesFull, InvalidRequest, PayloadTooLarge
from supervisor.proxy.asgi import ClientGone
from supervisor.system.worker_thread import WorkerThread

JSON = "application/json"
"""The content type of most bodies."""

DIRECT = 1 << 18
"""Bytes up to which a body is parsed as a whole, unless it is all arrays and objects: some 10 ms at most."""

_DENSE = 1 << 13  # arrays and objects in such a body; what is built of more than that keeps the collector busy
_SMALL = 1 << 12  # bytes of a request that takes its turn without asking
_TURN_S = 0.005  # of computing with requests before others on the loop are served
_PIECE = 1 << 18  # bytes that are looked at in one go
_FORM_PIECE = 1 << 14  # bytes of a form that are read in one go
_RETRY_S = 2.0
_DIGITS = 20  # of a length; one with more, zeros, is as good as none

_Result = TypeVar("_Result")


class Bodies:
    """The room for the bodies of all requests of one kind that wait or run.

    Args:
        most: bytes of one body.
        total: bytes of all together, at least `most`.
        keys: of the configuration, which set the two; empty where nothing does.

    Attributes:
        held: bytes that are here.
        turns: of those who compute on the loop.
        thread: where large requests are parsed and changed. One: of two that compute, the loop would wait for both.
    """

    def __init__(self, most: int, total: int, keys: tuple[str, ...] = ()) -> None:
        self.most = most
        self.held = 0
        self.turns = Turns()
        self.thread: Executor = WorkerThread("bodies")
        self._total = max(total, most)
        self._most_key, self._total_key = keys or ("", "")

    def room(self) -> Room:
        """Return room for one request."""
        return Room(self)

    def take(self, size: int) -> None:
        """Count bytes that have arrived. Raise BodiesFull."""
        if self.held + size > self._total:
            where = f" ({self._total_key})" if self._total_key else ""
            raise BodiesFull(
                f"Requests that wait or run hold {self.held >> 20} of {self._total >> 20} MiB{where}. "
                "Repeat the request later.",
                retry_after=_RETRY_S,
            )
        self.held += size

    def check(self, size: int) -> None:
        """Raise PayloadTooLarge for a body of so many bytes, if that is too many."""
        if size > self.most:
            advice = f"send less or raise {self._most_key}" if self._most_key else "send less"
            raise PayloadTooLarge(f"The request body is larger than {self.most >> 20} MiB; {advice}.")


class Room:
    """One request's share, given back at the end of a `with` block.

    Attributes:
        size: bytes of its body that have arrived.
    """

    __slots__ = ("bodies", "size")

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies
        self.size = 0

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *exc: object) -> None:
        self.bodies.held -= self.size

    def take(self, size: int) -> None:
        """Count a piece. Raise PayloadTooLarge, BodiesFull."""
        self.bodies.check(self.size + size)
        self.bodies.take(size)
        self.size += size


class Turns:
    """A scheduler that lets many compute on the loop, together for some milliseconds at a time. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent = 0.0  # since others were served
        self._counting = False

    async def run(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that takes some milliseconds at most, and return its result."""
        while self._spent >= _TURN_S:  # noqa: ASYNC110 - what is waited for is that others were served
            await asyncio.sleep(0)
        begun = self._clock()
        try:
            return function()
        finally:
            self._spent += self._clock() - begun
            if not self._counting:
                self._counting = True
                asyncio.get_running_loop().call_soon(self._served)

    def _served(self) -> None:
        self._spent = 0.0
        self._counting = False


@dataclass(frozen=True, slots=True)
class ClientJson:
    """A client's JSON object, or a form's fields as one.

    Attributes:
        text: the body, or of a large one its outline.
        fields: what that says.
        size: bytes of the body.
        content_type: of what `payload` makes.
    """

    text: bytes
    fields: Mapping[str, object]
    size: int
    _bodies: Bodies
    _outline: Outline | FormOutline | None = None
    content_type: str = JSON

    @property
    def opaque(self) -> bool:
        """True if there are fields in which nothing can be looked at."""
        return self._outline is not None and self._outline.opaque

    @property
    def is_form(self) -> bool:
        """True for a form, whose files stand in none of its fields."""
        return isinstance(self._outline, FormOutline)

    @property
    def is_whole(self) -> bool:
        """True if `text` is all of the body."""
        return self._outline is None

    def payload(self, text: bytes) -> Payload:
        """Return the bytes to send, of `content_type`, for JSON that was made of `text` or `fields`."""
        return text if self._outline is None else self._outline.pieces(text)

    def heads(self, value: object) -> object:
        """Return a value of `fields` of which only the beginnings of texts count."""
        return value if self._outline is None else self._outline.heads(value, CHARACTERS)

    def whole(self, text: str, most: int) -> str:
        """Return a text of `fields` that may have been left out; of a longer one the first `most` characters."""
        found = text if self._outline is None else self._outline.heads(text, most)
        assert isinstance(found, str)  # the head of a text is one
        return found

    def unseen(self) -> Iterator[memoryview]:
        """Yield the fields in which nothing can be looked at, as they came."""
        return self._outline.hidden() if isinstance(self._outline, Outline) else iter(())

    def files(self) -> Iterator[memoryview]:
        """Yield the contents of a form's files."""
        return self._outline.files() if isinstance(self._outline, FormOutline) else iter(())

    def with_texts(self, texts: Sequence[bytes]) -> tuple[ClientJson, tuple[str, ...]]:
        """Return the same request that may hold these texts too, and the marks that stand for them in its fields.

        texts: as they stand in JSON, escaped. They are left out of what is parsed and changed, as other long texts.
        """
        assert not isinstance(self._outline, FormOutline)  # a form's files are none of its fields
        outline, marks = self._outline or of_small(self.text, secrets.token_hex(8)), []
        for text in texts:
            outline, mark = outline.with_text(text)
            marks.append(mark)
        return replace(self, size=self.size + sum(map(len, texts)), _outline=outline), tuple(marks)

    async def work(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that computes with all of this request, and return its result; for a large one in a thread."""
        if self._outline is None:
            return function() if self.size <= _SMALL else await self._bodies.turns.run(function)
        return await _in_thread(self._bodies.thread, function)


async def read_json(receive: Receive, room: Room, declared: int | None) -> ClientJson:
    """Return the body as a JSON object. Raises InvalidRequest, PayloadTooLarge, BodiesFull, ClientGone."""
    body = _Body(room, declared, as_json=True)
    await body.take(receive)
    return await body.json()


async def read_form(receive: Receive, room: Room, scope: Scope) -> ClientJson:
    """Return the body as a form. Raises as `read_json`; a file in it is looked at as little as a long text in JSON."""
    reader = FormReader(boundary_of(header(scope, b"content-type")))
    body = _Body(room, declared_size(scope), as_json=False)

    async def read(piece: bytes) -> None:
        for start in range(0, len(piece), _FORM_PIECE):
            await room.bodies.turns.run(partial(reader.feed, piece[start : start + _FORM_PIECE]))

    await body.take(receive, read)
    whole = body.whole()
    view = memoryview(whole) if isinstance(whole, bytes) else whole[0]
    outline = FormOutline.of(reader.finish(), view, secrets.token_hex(16).encode())
    return ClientJson(outline.text, parse_object(outline.text), room.size, room.bodies, outline, outline.content_type)


async def read_any(
    receive: Receive, room: Room, declared: int | None, *, as_json: bool
) -> tuple[Payload, ClientJson | None]:
    """Return the body as it is; with `as_json` also as a JSON object, where it is one.

    Raises PayloadTooLarge, BodiesFull, ClientGone.
    """
    body = _Body(room, declared, as_json=as_json)
    try:
        await body.take(receive)
        return body.whole(), await body.json() if as_json else None
    except PayloadTooLarge:
        raise
    except InvalidRequest:
        await body.take(receive)
        return body.whole(), None


def declared_size(scope: Scope) -> int | None:
    """Return the bytes that the client says it sends; None where it does not say."""
    found = header(scope, b"content-length")
    return int(found) if found.isdigit() and len(found) <= _DIGITS else None


def header(scope: Scope, name: bytes) -> bytes:
    """Return a header's value, the first if there are several; empty where there is none. name: in lower case."""
    return next((value for key, value in scope.get("headers", ()) if key == name), b"")


def parse_object(text: bytes) -> dict[str, object]:
    """Return the JSON object of a text. Raise InvalidRequest."""
    try:
        parsed = parse(text)
    except NotJson as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    return parsed


class _Body:
    """The bytes of a body as they arrive. `declared`: as the client says. `as_json`: it will be parsed."""

    def __init__(self, room: Room, declared: int | None, *, as_json: bool) -> None:
        room.bodies.check(declared or 0)
        self._room = room
        self._most = room.bodies.most if declared is None else declared
        self._reads = as_json
        self._more = True
        self._parts: list[bytes] = []
        self._mapped: mmap.mmap | None = None
        self._outliner: Outliner | None = None

    async def take(self, receive: Receive, read: Callable[[bytes], Awaitable[None]] | None = None) -> None:
        """Take the body to its end; a large one that will be parsed is read meanwhile. `read` gets every piece.

        Raises InvalidRequest where it is no JSON object; called again it goes on and reads no more.
        """
        while self._more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._more = message.get("more_body", False)
            piece = message.get("body", b"")
            large = self._add(piece)
            if large and self._reads:
                await self._read(large)
            if read is not None:
                await read(piece)

    def whole(self) -> bytes | tuple[memoryview]:
        """Return the whole body; of a large one, a view of its memory."""
        if self._mapped is not None:
            return (memoryview(self._mapped)[: self._room.size],)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    async def json(self) -> ClientJson:
        """Return the body as JSON."""
        room, whole = self._room, self.whole()
        bodies = room.bodies
        if isinstance(whole, bytes):
            if len(whole) <= _SMALL:
                return ClientJson(whole, parse_object(whole), room.size, bodies)
            if whole.count(b"[") + whole.count(b"{") <= _DENSE:
                return ClientJson(whole, await bodies.turns.run(partial(parse_object, whole)), room.size, bodies)
            await self._read(whole)
            whole = (memoryview(whole),)
        outliner, (view,), marker = self._outliner, whole, secrets.token_hex(8)
        assert outliner is not None  # it has been read

        def outlined() -> tuple[Outline, dict[str, object]]:
            outline = outliner.finish(view, marker)
            return outline, parse_object(outline.text)

        outline, fields = await _in_thread(bodies.thread, outlined)
        return ClientJson(outline.text, fields, room.size, bodies, outline)

    def _add(self, piece: bytes) -> bytes:
        """Keep a piece; return, of a large body, what has come since the last call."""
        room = self._room
        begun = room.size
        room.take(len(piece))
        if room.size > self._most:
            raise PayloadTooLarge("The request body is longer than its Content-Length.")
        if self._mapped is None:
            self._parts.append(piece)
            if room.size <= DIRECT:
                return b""
            begun, piece = 0, b"".join(self._parts)
            self._parts.clear()
            self._mapped = mmap.mmap(-1, self._most, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._mapped[begun : room.size] = piece
        return piece

    async def _read(self, data: bytes) -> None:
        self._outliner = self._outliner or Outliner()
        try:
            for start in range(0, len(data), _PIECE):
                piece, at = data[start : start + _PIECE], 0
                while at < len(piece):
                    at = await self._room.bodies.turns.run(partial(self._outliner.feed, piece, at))
        except InvalidRequest:
            self._reads = False
            raise


async def _in_thread(thread: Executor, function: Callable[[], _Result]) -> _Result:
    known = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(thread, known.run, function)
