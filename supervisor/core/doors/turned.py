"""A request of another program's API as an engine's own: what is asked, how the answer is said, what else is wished."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from supervisor.core.params.fates import Fields
from supervisor.core.recovery.voices import Voice

Head: TypeAlias = Callable[[str, int], str]
"""Returns the beginning of a text of a request: a long one may stand elsewhere, and a mark in its place."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What an answer tells that no engine knows.

    Attributes:
        model: as the client has named it.
        now: seconds since 1970.
        elapsed: seconds since the request arrived, and those of them until it had an engine.
    """

    model: str
    now: Callable[[], float]
    elapsed: Callable[[], tuple[float, float]]


class RawVoice(Protocol):
    """The answer to a request in an engine's own form of a completion."""

    def event(self, event: Mapping[str, Any], /) -> bytes:
        """Return the bytes for an event."""
        ...

    def error(self, error: Mapping[str, object], /) -> bytes:
        """Return the end of a stream that failed; `error` is OpenAI's error object."""
        ...

    def whole(self, answer: Mapping[str, Any], /) -> Mapping[str, object]:
        """Return the object for a whole answer."""
        ...


@dataclass(frozen=True, slots=True)
class Spoken:
    """The answer of a chat, said by a voice."""

    voice: Callable[[Telling], Voice]


@dataclass(frozen=True, slots=True)
class Continued:
    """The answer of a completion in the engine's own form, said by a voice."""

    voice: Callable[[Telling], RawVoice]


@dataclass(frozen=True, slots=True)
class Changed:
    """An answer that comes in one piece, changed; a stream stays as it is."""

    change: Callable[[Mapping[str, Any], Telling], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request wishes of its model, besides an answer.

    Attributes:
        keep: seconds of idleness after which it may leave, from now on; infinity: never; None: nothing is wished.
        context: tokens that a request shall have.
    """

    keep: float | None = None
    context: int | None = None

    def __bool__(self) -> bool:
        return self.keep is not None or self.context is not None


@dataclass(frozen=True, slots=True)
class Turned:
    """A request, turned.

    Attributes:
        path: of the engine. fields: what it is asked.
        model: as the client has named it; not checked.
        answer: how it is said.
        defaults: parameters that the API has where neither the request nor the model has them.
        shortens: a conversation that is too long loses its oldest messages.
        only: the answer to a request that has nothing to be answered: its model is loaded, or unloaded with `keep` 0.
    """

    path: str
    fields: Fields
    model: object
    answer: Spoken | Continued | Changed
    wishes: Wishes = field(default_factory=Wishes)
    defaults: Fields = field(default_factory=dict)
    only: Callable[[Telling], Mapping[str, object]] | None = None
    shortens: bool = False


Turn: TypeAlias = Callable[[Mapping[str, Any], Head], Turned]
"""Turns a request. Raises InvalidRequest."""
