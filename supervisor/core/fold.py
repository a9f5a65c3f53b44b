"""Folds a stream of chunks into the one object the engine would have answered without streaming.

What is common to chat and text completions; the shape of a choice lives in `core/chat.py` and
`core/completions.py`. Measured on llama-server b11434, where several choices are asked for: `usage` and `timings`
come once per choice, and its own single answer shows those of choice 0; so does this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol

from supervisor.core.sse import DONE, SseDecoder, SseEvent
from supervisor.errors import EngineLost, EngineStreamInvalid

_PER_CHOICE = ("usage", "timings")
_NOT_KEPT = frozenset({"choices", "object", "prompt_progress", *_PER_CHOICE})


class ChoiceFold(Protocol):
    """Collects one choice."""

    def feed(self, choice: Mapping[str, object]) -> None: ...

    def result(self) -> dict[str, object]: ...


class ChunkFold:
    """Collects the parsed chunks of one answer.

    Args:
        object_name: `object` of the answer.
        new_choice: makes the collector of the choice with this index.
    """

    def __init__(self, object_name: str, new_choice: Callable[[int], ChoiceFold]) -> None:
        self._object = object_name
        self._new_choice = new_choice
        self._fields: dict[str, object] = {}
        self._choices: dict[int, ChoiceFold] = {}
        self._per_choice: dict[str, dict[int, object]] = {name: {} for name in _PER_CHOICE}
        self._index = 0  # of the choice seen last: a usage chunk names none and follows its choice's finish

    def feed(self, chunk: Mapping[str, object]) -> None:
        """Add one chunk. Raises `EngineStreamInvalid` when it has not the shape of one."""
        try:
            self._feed(chunk)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EngineStreamInvalid(f"A chunk of the engine's stream has an unknown shape: {error!r}.") from error

    def response(self) -> dict[str, object]:
        """The answer so far, complete when the stream is."""
        answer = dict(self._fields)
        answer["object"] = self._object
        answer["choices"] = [self._choices[index].result() for index in sorted(self._choices)]
        for name, values in self._per_choice.items():
            if values:
                answer[name] = values[min(values)]
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
        self._fields.update((key, value) for key, value in chunk.items() if key not in _NOT_KEPT)


class StreamFold:
    """From the bytes of the engine's stream to the one answer.

    Args:
        chunks: the collector of this kind of answer.
        max_event_bytes: see `SseDecoder`.

    Attributes:
        done: the stream said `[DONE]`.
        error: the engine's error object (`code`, `message`, `type`) where it reported one in mid-stream.
    """

    def __init__(self, chunks: ChunkFold, decoder: SseDecoder | None = None) -> None:
        self.done = False
        self.error: Mapping[str, object] | None = None
        self._chunks = chunks
        self._decoder = decoder or SseDecoder()

    def feed(self, data: bytes) -> None:
        """Add bytes, cut anywhere. Raises `EngineStreamInvalid`."""
        for event in self._decoder.feed(data):
            self._event(event)

    def response(self) -> dict[str, object]:
        """The answer. Raises `EngineLost` when the stream is not `done` or has an `error`."""
        if self.error is not None:
            raise EngineLost(f"The engine failed while answering: {self.error.get('message', 'no reason given')}")
        if not self.done:
            raise EngineLost("The engine's answer broke off before its end.")
        return self._chunks.response()

    def _event(self, event: SseEvent) -> None:
        if event.data == DONE:
            self.done = True
            return
        try:
            chunk = json.loads(event.data)
        except ValueError as error:
            raise EngineStreamInvalid(f"An event of the engine's stream is not JSON: {error}.") from error
        if chunk is None:  # the engine's start marker of a second prompt, sent where no progress is asked for
            return
        if not isinstance(chunk, dict):
            raise EngineStreamInvalid("An event of the engine's stream is not a JSON object.")
        failure = chunk.get("error")
        if failure is not None:
            self.error = failure if isinstance(failure, dict) else {"message": str(failure)}
            return
        self._chunks.feed(chunk)


def extend_lists(into: dict[str, list[object]], part: Mapping[str, object]) -> None:
    """Append each list of `logprobs` to the one collected so far."""
    for key, value in part.items():
        if isinstance(value, list):
            into.setdefault(key, []).extend(value)
