"""Ask once more with a shorter conversation, where an engine says that its context is too small for the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from supervisor.core.doors.shortened import Exceeded, shortened
from supervisor.core.text.foreignjson import escaped
from supervisor.proxy.bodies import ClientJson

_TRIES: Final = 4  # the estimate of what a message takes may be off


class TooLong(Exception):
    """The conversation is to be made shorter by what it exceeds the context."""

    def __init__(self, exceeded: Exceeded) -> None:
        super().__init__()
        self.exceeded = exceeded


@dataclass(slots=True)
class Shortening:
    """The shortening of one request. body: as it was last asked; prepare: makes what the engine gets of one."""

    body: ClientJson
    prepare: Callable[[ClientJson], None]
    tries: int = _TRIES

    def judge(self, error: Mapping[str, object]) -> None:
        """Raise TooLong where the error says that the conversation is, and it can be shorter."""
        exceeded = Exceeded.of(error)
        messages = self.body.fields.get("messages")
        if exceeded is not None and self.tries and isinstance(messages, list):
            raise TooLong(exceeded)

    async def shorten(self, exceeded: Exceeded) -> None:
        """Have the engine asked for less. What cannot be shorter is asked once more, for its error to be the answer."""
        self.tries -= 1
        shorter = await self.body.work(partial(self._shorter, exceeded))
        if shorter is None:
            self.tries = 0
            return
        self.body = shorter
        await shorter.work(partial(self.prepare, shorter))

    def _shorter(self, exceeded: Exceeded) -> ClientJson | None:
        messages = self.body.fields["messages"]
        assert isinstance(messages, list)  # `judge` has looked
        fewer = shortened(messages, exceeded, self.body.whole)
        if fewer is None:
            return None
        fields = {**self.body.fields, "messages": fewer}
        return replace(self.body, text=escaped(fields), fields=fields)
