"""Answers that are not looked into: passed on as they come, or those of a chat said in another API's form."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, cast

from supervisor.core.recovery import AskAgain, RecoveredStream
from supervisor.core.recovery.chunks import Untouched
from supervisor.core.recovery.stream import Ways
from supervisor.core.recovery.typed import Chunk
from supervisor.core.recovery.voices import Voice
from supervisor.core.stream.apis import OPENAI, Api
from supervisor.core.stream.filter import StreamFilter
from supervisor.engines.client import EngineClient
from supervisor.proxy.answers import Filter


class Plain:
    """An answer that is passed on as the engine gives it. What is done to others, `Spoken` and `Watch` say.

    Attributes:
        verbatim: what the engine streams is what the client wants, apart from single events.
        rewrites: an answer that came in one piece becomes another, by `answer`, and one that was folded, by `said`.
        looks: an answer is folded from what `stream` makes of it.
        raw: the engine's parser is left out.
    """

    verbatim = True
    rewrites = False
    looks = False
    raw = False

    def stream_filter(self, api: Api, *, drop_progress: bool) -> StreamFilter:
        """What cuts the bytes of a streamed answer; `api`: the client's."""
        if not self.rewrites:
            return StreamFilter(drop_progress=drop_progress, api=api)
        return StreamFilter(drop_progress=drop_progress and self.verbatim, api=OPENAI, one_created=self.verbatim)

    def stream(self, relay: StreamFilter) -> Filter:
        """The way of a streamed answer's bytes; anew for every try."""
        return relay

    def answer(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """An answer that came in one piece, as the client gets it."""
        return body

    def said(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        """A folded answer, as the client gets it."""
        return answer

    def again(self, why: AskAgain, *, goes_on: bool) -> None:
        """The engine is asked once more; `goes_on`: the client has the beginning."""

    async def changed(self, client: EngineClient) -> Mapping[str, object] | None:
        """The request, where it has become another."""
        return None

    async def raw_payload(self, client: EngineClient, body: Mapping[str, object] | None) -> bytes | None:
        """The body of the raw route; None where that is not to be gone."""
        return None

    def finish(self) -> None:
        """The answer is over."""


PLAIN: Final = Plain()


class Spoken(Plain):
    """One request's answer, a chat's, in the form of another API.

    Args:
        new_voice: of the client's API.
    """

    verbatim = False
    rewrites = True

    def __init__(self, new_voice: Callable[[], Voice]) -> None:
        self._new_voice = new_voice

    def stream(self, relay: StreamFilter) -> RecoveredStream:
        """The way of a streamed answer's bytes; anew for every try."""
        return RecoveredStream(relay, Untouched(), time.monotonic, Ways(voice=self._new_voice()))

    def said(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        """A whole answer in the client's form."""
        return self._new_voice().whole(cast(Chunk, answer))

    def answer(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """See `said`."""
        return self.said(body)
