"""The record of a request that has ended, and of a load: all that is kept of them. No word of a prompt or an answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Final

CLIENT_GONE: Final = 499
"""The status of a request whose client left before its answer ended, as reverse proxies write it."""

LONGEST: Final = 256
"""Characters of any text in a record."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What an engine said of an answer: tokens, and milliseconds of its own work; None: it said nothing of it.

    Attributes:
        prompt_tokens: of the whole prompt, with those from its cache. cached_tokens: of these, from the cache.
        prompt_ms: for the prompt's other tokens. predicted_ms: for the answer's.
        finish: the reason why it ended, in the API's own word.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_ms: float | None = None
    predicted_ms: float | None = None
    finish: str | None = None

    @property
    def prompt_tokens_per_second(self) -> float | None:
        """The speed at which the prompt was read, without what was in the cache."""
        read = (self.prompt_tokens or 0) - (self.cached_tokens or 0)
        return _rate(read, self.prompt_ms)

    @property
    def tokens_per_second(self) -> float | None:
        """The speed at which the answer was written."""
        return _rate(self.completion_tokens or 0, self.predicted_ms)


@dataclass(frozen=True, slots=True)
class Finished:
    """A relayed request that has ended.

    Attributes:
        at: when it arrived, seconds since 1970.
        path: the row of the table of paths, not what the client wrote. model: an id of the catalogue, or None.
        key: the name of its key. client: its User-Agent.
        status, code: the answer's status, and the error's code; of an error in a stream, the latter alone.
        seconds: from its arrival to its end. queued: until it had an engine. first: until the first token.
        calls: tool calls in the answer.
    """

    at: float
    request_id: str
    path: str
    model: str | None
    key: str | None
    client: str
    stream: bool
    status: int
    code: str | None
    seconds: float
    queued: float | None
    first: float | None
    spent: Spent
    calls: int = 0

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        told = {name: getattr(self, name) for name in _OF_REQUEST}
        spent = {name: getattr(self.spent, name) for name in _OF_SPENT}
        speeds = {
            "prompt_tokens_per_second": self.spent.prompt_tokens_per_second,
            "tokens_per_second": self.spent.tokens_per_second,
        }
        return {**told, **spent, **speeds}


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """Something that happened to a model's engine.

    Attributes:
        at: seconds since 1970. event: `engine_start`, `engine_ready`, `engine_gone`, … as in the log.
        seconds: from the start to being ready, for `engine_ready`.
        code, reason: of a failure.
    """

    at: float
    model: str
    engine: int
    event: str
    seconds: float | None = None
    code: str | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        return asdict(self)


def _rate(tokens: int, ms: float | None) -> float | None:
    return tokens / ms * 1000 if ms and tokens > 0 else None


_OF_SPENT: Final = tuple(one.name for one in fields(Spent))
_OF_REQUEST: Final = tuple(one.name for one in fields(Finished) if one.name != "spent")
