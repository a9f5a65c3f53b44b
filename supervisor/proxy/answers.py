"""Turn the engine's response into the client's: streamed through, folded into one object, or passed on whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, cast

from supervisor.core.engine_output.broken import said_broken
from supervisor.core.engine_output.errors import error_in, may_pass, translate
from supervisor.core.engine_output.foreign import foreign_error
from supervisor.core.stream.fold import StreamFold, said_by_engine, well_shaped
from supervisor.core.text.foreignjson import written
from supervisor.engines.client import MOST_TOLD, AnswerTooLarge, EngineResponse, EngineUnreachable
from supervisor.errors import EngineStreamInvalid
from supervisor.proxy.asgi import Responder

_MOST_WHOLE = 256 << 20  # bytes of an answer that is passed on in one piece
_REFUSED = 400  # the statuses from here on tell of an error
_AT_ONCE = 1 << 14  # and of one that is changed on the loop that relays
_MOST_CHANGED = MOST_TOLD  # of one that is read for it; that takes 10 ms for each MiB at least, while all others wait

Changed: TypeAlias = Callable[[Mapping[str, object]], Mapping[str, object]]
"""A change to a whole answer."""

Judge: TypeAlias = Callable[[Mapping[str, object]], None]
"""Is told of an engine's error, and may raise one of its own."""


class Filter(Protocol):
    """A filter between the engine's bytes and the client's: `core/stream/filter.py`, or one with the same methods."""

    @property
    def done(self) -> bool: ...

    def feed(self, chunk: bytes, /) -> bytes: ...

    def ending(self, error: Mapping[str, object]) -> bytes: ...

    def cut(self) -> None: ...


class StreamBroken(Exception):
    """The engine's answer ended before it was complete, or says that the engine can work no more.

    `said` is then its error's message, where the client's bytes were not cut out of a stream.
    """

    def __init__(self, said: str = "") -> None:
        super().__init__(said)
        self.said = said


class BrokenOff(Exception):
    """The engine broke off an answer that is no stream of events: all that a client can be told is the same."""


async def stream_through(
    upstream: EngineResponse, filtered: Filter, responder: Responder, heard: Callable[[bytes], bool] | None = None
) -> None:
    """Send the head and the events as they come. Raise StreamBroken, between two events, where the end is missing.

    `heard` is called with the first events, until it returns True.

    The head goes out while the engine works on the prompt, so that nobody gives up meanwhile and the first event need
    not wait for it. What fails from then on is said in the stream.
    """
    await responder.start()
    held: list[bytes] = []

    def pass_on(arrived: bytes) -> bool:
        events = filtered.feed(arrived)
        if not events or (not upstream.is_over and responder.write_now(events)):
            return True
        held.append(events)
        return False

    def begin(arrived: bytes) -> bool:
        held.append(filtered.feed(arrived))
        return False

    while not await upstream.pipe(pass_on if heard is None else begin):
        for events in filter(None, held):
            heard = None if heard is None or heard(events) else heard
            await (responder.end if upstream.is_over and filtered.done else responder.write)(events)
        held.clear()
    if not filtered.done:
        raise StreamBroken
    if not responder.ended:
        await responder.end()


async def fold(
    upstream: EngineResponse,
    into: StreamFold,
    responder: Responder,
    through: Filter | None = None,
    changed: Changed | None = None,
) -> None:
    """Send one object made of the whole stream, `changed`.

    Raise StreamBroken where the end is missing, or the engine's device has failed.
    """
    while arrived := await upstream.read_some():
        into.feed(arrived if through is None else through.feed(arrived))
        if into.error is not None:
            if said := said_broken(into.error):
                raise StreamBroken(said)
            await send_error(responder, into.error)
            return
    await folded(into, responder, changed)


async def folded(into: StreamFold, responder: Responder, changed: Changed | None) -> None:
    """Send the object that was made of a stream, `changed`. Raise StreamBroken where the end is missing."""
    if not into.done:
        raise StreamBroken
    with well_shaped():
        answer = into.response()
        body = written(answer if changed is None else changed(cast(Mapping[str, object], answer)))
    await responder.whole(200, body)


async def pass_whole(
    upstream: EngineResponse, responder: Responder, changed: Changed | None, judge: Judge | None = None
) -> None:
    """Send what the engine answered, an error in our envelope. changed: what becomes of an answer. judge: may raise.

    Raises StreamBroken where the engine's device has failed; EngineStreamInvalid where it is too large, for
    probabilities of all tokens of a vocabulary, say.
    """
    reads = changed is not None or upstream.status >= 400
    body = await _read(upstream, _MOST_CHANGED if reads else _MOST_WHOLE)
    if upstream.status == 200 and changed is not None:
        with well_shaped():
            said = cast(Mapping[str, object], said_by_engine(body, "The engine's answer"))
            answer = changed(said) if len(body) <= _AT_ONCE else await asyncio.to_thread(changed, said)
        await responder.whole(200, written(answer))
    elif upstream.status < 400:
        await responder.whole(upstream.status, body)
    else:
        error = error_in(body)
        if broken := said_broken(error):
            raise StreamBroken(broken)
        if judge is not None:
            judge(error)
        await send_error(responder, error, upstream.status)


async def pass_as_it_is(upstream: EngineResponse, responder: Responder) -> None:
    """Send what the engine answers, piece by piece as it comes; an error in our envelope.

    Raises EngineUnreachable where it breaks off before the first piece, BrokenOff later.
    """
    if upstream.status >= _REFUSED:
        await send_error(responder, foreign_error(await upstream.read(), upstream.status), upstream.status)
        return
    piece = await upstream.read_some()
    kind = upstream.full_content_type
    await responder.start(upstream.status, [(b"content-type", kind)] if kind else [])
    try:
        while piece:
            await responder.write(piece)
            piece = await upstream.read_some()
    except EngineUnreachable as error:
        raise BrokenOff(str(error)) from error
    await responder.end()


async def _read(upstream: EngineResponse, most: int) -> bytes:
    try:
        return await upstream.read(most)
    except AnswerTooLarge:
        raise EngineStreamInvalid(f"The engine's answer is larger than {most >> 20} MiB; ask for less.") from None


async def send_error(responder: Responder, error: Mapping[str, object], status: int = 500) -> None:
    """Send an engine's error object in our envelope; status: what counts where it names none."""
    found, envelope = translate(error, status)
    responder.refused = 200 if responder.started else found, str(envelope["error"]["code"])
    headers = {} if may_pass(found, envelope) else {"x-should-retry": "false"}
    await responder.whole(found, written(envelope), headers)
