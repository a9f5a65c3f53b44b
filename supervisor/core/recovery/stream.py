"""The byte path of an answer in which calls are looked for: whole events in, whole events out.

An event of which nothing changes goes on as the engine wrote it. It stands behind `core/stream/filter.py`, which cuts
the bytes into whole events and takes out what the client did not ask for, and looks like it to whoever sends the bytes
on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

from supervisor.core.recovery.again import Again, AskAgain, Ending, Judge, ParserFailed
from supervisor.core.recovery.chunks import Recovery
from supervisor.core.recovery.raw import RawChunks
from supervisor.core.recovery.thoughts import Thoughts
from supervisor.core.recovery.typed import Choice, Chunk, RawEvent, Usage
from supervisor.core.recovery.usage import usage_in, with_spent
from supervisor.core.recovery.voices import ChatVoice, Voice
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.stream.fold import well_shaped
from supervisor.core.stream.sse import DONE, MAX_EVENT_BYTES
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import EngineStreamInvalid

_END: Final = b"\n\n"
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_KEEP_ALIVE_S: Final = 2.0
_MOST_BYTES: Final = 2 * MAX_EVENT_BYTES
_PARSER: Final = re.compile(r"does not match the expected|Failed to parse input|grammar stack|parse error")


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways in which an answer is taken in and given out.

    Attributes:
        raw: the engine's events are those of a completion; this makes chunks of a chat of them.
        again: when a failure of the engine's parser raises ParserFailed.
        judge: asked where the model stops without a call; what it gives is raised.
        voice: says it to the client.
        lead: goes before the first text, where the client has some from before.
        spent: the tokens of earlier tries, which the usage has, too.
        thoughts: given out as the answer, where there is nothing else.
    """

    raw: RawChunks | None = None
    again: Again = Again.NEVER
    judge: Judge | None = None
    voice: Voice = field(default_factory=ChatVoice)
    lead: str = ""
    spent: Usage | None = None
    thoughts: Thoughts | None = None


class RecoveredStream:
    """A filter between the engine's bytes and the client's.

    Args:
        relay: cuts the bytes.
        recovery: of this answer's chunks.
        clock: seconds, for the comments that keep a connection alive while a call is held back.
        ways: see `Ways`.

    Attributes:
        done: the client's stream has been given its end.
        error: the engine's error object, where it is all there is to say.
    """

    def __init__(
        self, relay: StreamFilter, recovery: Recovery, clock: Callable[[], float], ways: Ways | None = None
    ) -> None:
        self.done = False
        self.error: Mapping[str, object] | None = None
        self._relay = relay
        self._recovery = recovery
        self._clock = clock
        self._last = clock()
        self._ways = ways or Ways()
        self._voice = self._ways.voice
        self._held: list[Chunk] | None = None  # the finish and what comes behind it, while it is judged
        self._said: list[str] = []
        self._size = 0
        self._lead = self._ways.lead

    def feed(self, arrived: bytes) -> bytes:
        """Return the bytes that may be sent now. Raise AskAgain, and EngineStreamInvalid for an unknown shape."""
        whole = self._relay.feed(arrived)
        if not whole or self.done:
            return b""
        events: list[bytes] = []
        try:
            with well_shaped():
                for event in whole.split(_END)[:-1]:
                    events.append(self._event(event))
        except AskAgain as again:
            again.before = b"".join(events)
            raise
        out = b"".join(events)
        now = self._clock()
        if out:
            self._last = now
        elif now - self._last >= _KEEP_ALIVE_S:
            self._last = now
            return _KEEP_ALIVE if self._voice.comments else b""
        return out

    def ending(self, error: Mapping[str, object]) -> bytes:
        """Return the bytes to send where the engine's stream broke off; see `StreamFilter.ending`."""
        if self.done:
            return b""
        self.done = True
        held: list[bytes] = []
        with suppress(EngineStreamInvalid), well_shaped():
            held.append(self._said_as(self._recovery.flush()))
        return b"".join([*held, self._voice.error(error)])

    def cut(self) -> None:
        """Forget the beginning of an event whose end will not come."""
        self._relay.cut()

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(b"data:"):
            return event + _END if self._voice.comments else b""
        data = event[5:].strip()
        if data == DONE.encode():
            return self._end()
        try:
            chunk: object = parse(data)
        except NotJson:
            chunk = None
        if not isinstance(chunk, dict):
            return event + _END if self._voice.verbatim else b""
        failure = chunk.get("error")
        if failure is not None:
            return self._failed(failure if isinstance(failure, dict) else {"message": str(failure)})
        if self._ways.raw is not None:
            return self._converted(self._ways.raw, cast(RawEvent, chunk))
        chunks = self._recovery.feed(cast(Chunk, chunk))
        kept = self._answering(self._kept(chunks))
        if len(kept) == 1 and kept[0] is chunk and self._voice.verbatim:
            return event + _END
        return self._said_as(kept)

    def _converted(self, raw: RawChunks, event: RawEvent) -> bytes:
        chunks = [out for chunk in raw.feed(event) for out in self._recovery.feed(chunk)]
        out = self._said_as(self._answering(self._kept(chunks)))
        return out + self._end() if raw.done else out

    def _kept(self, chunks: list[Chunk]) -> list[Chunk]:
        """Return the chunks that can be sent now: a finish without a call waits until it is judged."""
        if self._ways.spent:
            chunks = [with_spent(chunk, self._ways.spent) for chunk in chunks]
        if self._lead:
            chunks = [self._led(chunk) for chunk in chunks]
        if self._ways.judge is None:
            return chunks
        out: list[Chunk] = []
        for chunk in chunks:
            if self._held is None and self._stops(chunk):
                self._held = []
            (out if self._held is None else self._held).append(chunk)
        return out

    def _answering(self, chunks: list[Chunk]) -> list[Chunk]:
        thoughts = self._ways.thoughts
        return chunks if thoughts is None else [one for chunk in chunks for one in thoughts.feed(chunk)]

    def _led(self, chunk: Chunk) -> Chunk:
        """Return the chunk with the lead before its text, if it is the first with text."""
        choices = list(chunk.get("choices") or ())
        delta = choices[0].get("delta") or {} if choices else {}
        content = delta.get("content")
        if not self._lead or not content:
            return chunk
        lead, self._lead = self._lead, ""
        first: Choice = {**choices[0], "delta": {**delta, "content": lead + content}}
        return {**chunk, "choices": [first, *choices[1:]]}

    def _stops(self, chunk: Chunk) -> bool:
        """Return whether the model ends here and has called nothing; remember its text."""
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            content = delta.get("content") or ""
            self._said.append(content)
            self._size += len(content.encode("utf-8", "replace"))
            self._size += len((delta.get("reasoning_content") or "").encode("utf-8", "replace"))
            if choice.get("finish_reason") == "stop":
                return True
        return False

    def _end(self) -> bytes:
        held, self._held = self._held, None
        if held is not None and self._ways.judge is not None:
            again = self._ways.judge(Ending("".join(self._said), self._size, _tokens(held), self._recovery.head))
            if again is not None:
                again.usage = usage_in(held)
                raise again
        self.done = True
        chunks = self._answering([*(held or ()), *self._recovery.flush()])
        return self._said_as(chunks) + self._voice.end()

    def _said_as(self, chunks: list[Chunk]) -> bytes:
        """Return the chunks as the client gets them. Each repeats what its event has beside the text."""
        out: list[bytes] = []
        left = _MOST_BYTES
        for chunk in chunks:
            out.append(self._voice.chunk(chunk))
            left -= len(out[-1])
            if left < 0:
                raise EngineStreamInvalid(f"An event of the engine's stream becomes more than {_MOST_BYTES} bytes.")
        return b"".join(out)

    def _failed(self, error: Mapping[str, object]) -> bytes:
        again = self._ways.again
        late = again is Again.UNTIL_SAID and self._recovery.has_said
        if again is not Again.NEVER and not late and is_parser_s(error):
            raise ParserFailed(self._recovery.head, keeps=again is Again.UNTIL_SAID)
        chunks, saved = self._recovery.save(error)
        self.done = True
        self.error = None if saved else error
        end = self._voice.end() if saved else self._voice.error(error)
        return self._said_as(chunks) + end


def _tokens(chunks: list[Chunk]) -> int | None:
    """Return the tokens of the answer, as the engine counts them."""
    for chunk in chunks:
        counts = (chunk.get("timings") or {}).get("predicted_n"), (chunk.get("usage") or {}).get("completion_tokens")
        for found in counts:
            if isinstance(found, int):
                return found
    return None


def is_parser_s(error: Mapping[str, object]) -> bool:
    """Return whether the engine failed over the model's text and not over anything else."""
    message = error.get("message")
    return isinstance(message, str) and _PARSER.search(message) is not None
