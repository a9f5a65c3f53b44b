"""End an answer that takes longer than its model allows, so that a forgotten request does not decode for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from supervisor.core.options.kinds import MOST_SLOTS
from supervisor.core.params.settings import RequestSettings
from supervisor.core.routes import kind_of
from supervisor.core.stream.cutoff import Cutoff, Ending
from supervisor.engines.client import EngineResponse
from supervisor.errors import TimeLimit


class Limit:
    """The time of one answer. It begins when an engine is asked for the first time, and goes on in further tries.

    Attributes:
        why: what the client is told.
    """

    def __init__(self, seconds: float, model: str) -> None:
        self.why = f"The answer was ended after {seconds:g} s, the `max_seconds` of '{model}'."
        self._seconds = seconds
        self._until: float | None = None
        self._cutoff: Cutoff | None = None

    def watches(self, upstream: EngineResponse) -> None:
        """Take in what the engine answers, for the end to fit."""
        if self._cutoff is not None:
            upstream.heard_by(self._cutoff.see)

    def running(self) -> asyncio.Timeout:
        """Return the block that ends with TimeoutError when the time is over."""
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._seconds
        return asyncio.timeout_at(self._until)

    def begin(self, path: str, asked: Mapping[str, object]) -> None:
        """Note what the engine is asked for."""
        kind = kind_of(path) if asked.get("stream") is True else None
        if kind is None or kind == "responses" or kind == "transcript":
            self._cutoff = None
            return
        options = asked.get("stream_options")
        usage = kind == "completion" or (isinstance(options, Mapping) and options.get("include_usage") is True)
        self._cutoff = Cutoff(Ending(kind, choices_of(asked), usage, self.why))

    def end(self) -> bytes:
        """Return the events that end the stream as the engine would. Raise TimeLimit where nothing can be ended."""
        if self._cutoff is None:
            raise TimeLimit(f"{self.why} Ask for a stream, which keeps what came until then, or for less.")
        return self._cutoff.end()


def limit_of(settings: RequestSettings, model: str) -> Limit | None:
    """Return the limit of an answer by a model, if it has one."""
    return None if settings.max_seconds is None else Limit(settings.max_seconds, model)


def choices_of(request: Mapping[str, object]) -> int:
    """Return how many choices an engine makes of one prompt: by its own name for their number, else by OpenAI's.

    It is a number that an engine may have: one that the engine does not look at may say anything.
    """
    counts = (request.get(name) for name in ("n_cmpl", "n"))
    count = next((one for one in counts if one is not None), 1)
    return min(max(count, 1), MOST_SLOTS) if isinstance(count, int) else 1
