"""Pass answers on that are not looked into: as they come, or those of a chat in another API's form."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, cast

from supervisor.core.recovery import AskAgain, RecoveredStream
from supervisor.core.recovery.chunks import Untouched
from supervisor.core.recovery.stream import Ways
from supervisor.core.recovery.thoughts import Thoughts, answered
from supervisor.core.recovery.typed import Chunk
from supervisor.core.recovery.voices import Voice
from supervisor.core.stream.apis import OPENAI, Api
from supervisor.core.stream.filter import StreamFilter
from supervisor.engines.client import EngineClient
from supervisor.proxy.answers import Filter
from supervisor.proxy.turns import Turns


class Plain:
    """An answer that is passed on as the engine gives it. `Spoken` and `Watch` do more.

    Attributes:
        verbatim: what the engine streams is what the client wants, apart from single events.
        rewrites: an answer that came in one piece becomes another, by `answer`, and one that was folded, by `said`.
        looks: an answer is folded from what `stream` makes of it.
        raw: the engine's parser is left out.
        turns: looks after those of the conversation; None: nothing is in doubt with them.
    """

    verbatim = True
    rewrites = False
    looks = False
    raw = False
    turns: Turns | None = None

    def __init__(self, turns: Turns | None = None) -> None:
        self.turns = turns

    def stream_filter(self, api: Api, *, drop_progress: bool) -> StreamFilter:
        """Return the filter that cuts the bytes of a streamed answer; `api`: the client's."""
        if not self.rewrites:
            return StreamFilter(drop_progress=drop_progress, api=api)
        return StreamFilter(drop_progress=drop_progress and self.verbatim, api=OPENAI, one_created=self.verbatim)

    def stream(self, relay: StreamFilter) -> Filter:
        """Return the filter of a streamed answer's bytes; a new one for every try."""
        return relay

    def unframed(self, relay: StreamFilter, filtered: Filter) -> Filter:
        """Return the filter in the place of `filtered` where nothing but the connection's end tells of the answer's."""
        return filtered

    def answer(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Return an answer that came in one piece, in the client's form."""
        return body

    def said(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        """Return a folded answer in the client's form."""
        return answer

    def again(self, why: AskAgain, *, goes_on: bool) -> None:
        """Note that the engine is asked once more; `goes_on`: the client has the beginning."""

    async def changed(self, client: EngineClient) -> Mapping[str, object] | None:
        """Return the request, if it has become another."""
        return None if self.turns is None else await self.turns.changed(client)

    async def raw_payload(self, client: EngineClient, body: Mapping[str, object] | None) -> bytes | None:
        """Return the body of the raw route; None where that is not taken."""
        return None

    def finish(self) -> int:
        """Note that the answer is over; return how many tool calls were seen in it."""
        return 0


PLAIN: Final = Plain()


class Spoken(Plain):
    """A chat's answer to one request, in the form of another API.

    Args:
        new_voice: of the client's API.
        thoughts: a reply of nothing but thoughts is the answer.
        turns: looks after those of the conversation.
    """

    rewrites = True

    def __init__(self, new_voice: Callable[[], Voice], *, thoughts: bool = False, turns: Turns | None = None) -> None:
        super().__init__(turns)
        self._new_voice = new_voice
        self._thoughts = thoughts
        self.verbatim = new_voice().verbatim

    def stream(self, relay: StreamFilter) -> RecoveredStream:
        """Return the filter of a streamed answer's bytes; a new one for every try."""
        return RecoveredStream(
            relay,
            Untouched(),
            time.monotonic,
            Ways(voice=self._new_voice(), thoughts=Thoughts() if self._thoughts else None),
        )

    def said(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        """Return a whole answer in the client's form."""
        said = cast(Chunk, answer)
        return self._new_voice().whole(answered(said) if self._thoughts else said)

    def answer(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Return an answer in the client's form; see `said`."""
        return self.said(body)
