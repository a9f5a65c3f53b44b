"""Fold a stream of chunks into the one object that the engine would have answered without streaming.

What is common to all, and to chat and text completions; the shape of a choice lives in `chat.py` and
`completions.py`, other answers in `responses.py` and `raw_completions.py`. Measured on llama-server b11434, where
several choices are asked for: `usage` and `timings` come once per choice, and its own single answer shows those of
choice 0; so does this one. `created` is the first chunk's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from supervisor.core.stream.sse import DONE, SseDecoder, SseEvent
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import EngineLost, EngineStreamInvalid

_VERBOSE = "__verbose"
_PER_CHOICE = ("usage", "timings", _VERBOSE)
_USUAL = 1024  # bytes of an event; what an event has beyond them is counted
_MOST_UNUSUAL = 64 << 20  # bytes; as values they take several times as much memory
_LEAST = 256  # bytes that an event counts at least, since it may make a value
_MOST = 256 << 20  # bytes of all events: of a million tokens
_NOT_KEPT = frozenset({"choices", "object", "prompt_progress", *_PER_CHOICE})


class ChoiceFold(Protocol):
    """The collector of one choice."""

    def feed(self, choice: Mapping[str, object]) -> None: ...

    def result(self) -> dict[str, object]: ...

    def debugging(self, told: Mapping[str, object]) -> dict[str, object]:
        """Return the `__verbose` of a single answer, made of that of the last event, as far as known."""
        ...


class Collector(Protocol):
    """The collector of one answer's parsed events.

    Attributes:
        done: the answer is complete, whether `[DONE]` follows or not.
    """

    @property
    def done(self) -> bool: ...

    def feed(self, chunk: Mapping[str, object], /) -> None:
        """Add one event. Raise `EngineStreamInvalid` for one of another shape."""
        ...

    def response(self) -> object:
        """Return the answer so far, complete when the stream is."""
        ...


class ChunkFold:
    """The collector of one answer's parsed chunks.

    Args:
        object_name: `object` of the answer.
        new_choice: makes the collector of the choice with this index.
    """

    done = False  # `[DONE]` says it

    def __init__(self, object_name: str, new_choice: Callable[[int], ChoiceFold]) -> None:
        self._object = object_name
        self._new_choice = new_choice
        self._fields: dict[str, object] = {}
        self._choices: dict[int, ChoiceFold] = {}
        self._per_choice: dict[str, dict[int, object]] = {name: {} for name in _PER_CHOICE}
        self._index = 0  # of the choice seen last: a usage chunk names none and follows its choice's finish

    def feed(self, chunk: Mapping[str, object]) -> None:
        """Add one chunk. Raise `EngineStreamInvalid` for one of another shape."""
        with well_shaped():
            self._feed(chunk)

    def response(self) -> dict[str, object]:
        """Return the answer so far, complete when the stream is."""
        answer = dict(self._fields)
        answer["object"] = self._object
        answer["choices"] = [self._choices[index].result() for index in sorted(self._choices)]
        for name, values in self._per_choice.items():
            if values:
                answer[name] = values[min(values)]
        told = self._per_choice[_VERBOSE]
        if told and self._choices:
            first = min(told)
            answer[_VERBOSE] = self._choices[first].debugging(unstreamed(told[first]))
        return answer

    def _feed(self, chunk: Mapping[str, object]) -> None:
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise TypeError("choices is not a list")
        for choice in choices:
            self._index = int(choice.get("index", 0))
            if self._index not in self._choices:
                self._choices[self._index] = self._new_choice(self._index)
            self._choices[self._index].feed(choice)
        for name in _PER_CHOICE:
            if chunk.get(name) is not None:
                self._per_choice[name][self._index] = chunk[name]
        created = self._fields.get("created", chunk.get("created"))
        self._fields.update((key, value) for key, value in chunk.items() if key not in _NOT_KEPT)
        if created is not None:
            self._fields["created"] = created


class StreamFold:
    """The fold from the bytes of the engine's stream to the one answer.

    Args:
        chunks: the collector of this kind of answer.
        decoder: with limits of its own.

    Attributes:
        error: the engine's error object (`code`, `message`, `type`) where it reported one in mid-stream.
    """

    def __init__(self, chunks: Collector, decoder: SseDecoder | None = None) -> None:
        self._said_done = False
        self.error: Mapping[str, object] | None = None
        self._chunks = chunks
        self._decoder = decoder or SseDecoder()
        self._unusual = 0
        self._all = 0

    @property
    def done(self) -> bool:
        """True if the stream has announced its end."""
        return self._said_done or self._chunks.done

    def feed(self, data: bytes) -> None:
        """Add bytes, cut anywhere. Raise `EngineStreamInvalid`."""
        for event in self._decoder.feed(data):
            self._event(event)

    def cut(self) -> None:
        """Forget the beginning of an event whose end will not come."""
        self._decoder = SseDecoder()

    def so_far(self) -> object:
        """Return the answer as far as it has come. Raise `EngineStreamInvalid`."""
        with well_shaped():
            return self._chunks.response()

    def response(self) -> object:
        """Return the answer. Raise `EngineLost` when the stream is not `done` or has an `error`."""
        if self.error is not None:
            raise EngineLost(f"The engine failed while answering: {self.error.get('message', 'no reason given')}")
        if not self.done:
            raise EngineLost("The engine's answer broke off before its end.")
        return self._chunks.response()

    def _event(self, event: SseEvent) -> None:
        if event.data == DONE:
            self._said_done = True
            return
        self._count(len(event.data))
        chunk = said_by_engine(event.data, "An event of the engine's stream")
        if chunk is None:  # the engine's start marker of a second prompt, sent where no progress is asked for
            return
        if not isinstance(chunk, dict):
            raise EngineStreamInvalid("An event of the engine's stream is not a JSON object.")
        failure = chunk.get("error")
        if failure is not None:
            self.error = failure if isinstance(failure, dict) else {"message": str(failure)}
            return
        self._chunks.feed(chunk)

    def _count(self, size: int) -> None:
        """Bound what comes with each token of an answer, and the answer."""
        self._unusual += max(0, size - _USUAL)
        self._all += max(size, _LEAST)
        if self._unusual > _MOST_UNUSUAL or self._all > _MOST:
            raise EngineStreamInvalid("The answer is too large for one object; ask for a stream, or for less.")


def said_by_engine(text: str | bytes, what: str) -> object:
    """Return the value of the engine's JSON; `what` names it in the error. Raise `EngineStreamInvalid`."""
    try:
        value: object = parse(text)
    except NotJson as error:
        raise EngineStreamInvalid(f"{what} is not JSON: {error}.") from error
    return value


@contextmanager
def well_shaped() -> Iterator[None]:
    """Turn the exceptions that a chunk of another shape causes into `EngineStreamInvalid`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise EngineStreamInvalid(f"A chunk of the engine's stream has an unknown shape: {error!r}.") from error


def unstreamed(told: object) -> dict[str, object]:
    """Return the engine's last event in the form of a request that was not streamed."""
    found = dict(told) if isinstance(told, Mapping) else {}
    settings = found.get("generation_settings")
    if isinstance(settings, Mapping):
        found["generation_settings"] = {**settings, "stream": False}
    return found


def extend_lists(into: dict[str, list[object]], part: Mapping[str, object]) -> None:
    """Append each list of `logprobs` to the one collected so far."""
    for key, value in part.items():
        if isinstance(value, list):
            into.setdefault(key, []).extend(value)
