"""Fold the events of a streamed `/completion` or `/infill`, the engine's own form of a completion.

Measured on llama-server b11434: the last event of each prompt and choice has all that its single answer has, but for
what the events before it said: text, tokens and probabilities. Several of them are answered as a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NotRequired, TypedDict, cast

from supervisor.core.stream.fold import unstreamed, well_shaped

_PROBABILITIES: Final = "completion_probabilities"


class _Event(TypedDict):
    """The part of an event that is looked at."""

    index: int
    content: str
    stop: bool
    completion_probabilities: NotRequired[list[object]]


class RawFold:
    """The collector of one answer's events.

    Args:
        fields: the paths of the fields to answer, `/` between two keys; empty: all.
    """

    def __init__(self, fields: tuple[str, ...] = ()) -> None:
        self._fields = fields
        self._texts: dict[int, list[str]] = {}
        self._probabilities: dict[int, list[object]] = {}
        self._ended: dict[int, Mapping[str, object]] = {}

    @property
    def done(self) -> bool:
        """True if the last event of each prompt and choice that has begun has come."""
        return bool(self._ended) and self._ended.keys() == self._texts.keys()

    def feed(self, event: Mapping[str, object]) -> None:
        """Add one event. Raise `EngineStreamInvalid` for one of another shape."""
        with well_shaped():
            told = cast(_Event, event)
            index = int(told["index"])
            self._texts.setdefault(index, []).append(str(told["content"]))
            self._probabilities.setdefault(index, []).extend(told.get(_PROBABILITIES) or ())
            if told["stop"]:
                self._ended[index] = event

    def response(self) -> object:
        """Return an object, or a list of several."""
        answers = [self._answer(index) for index in sorted(self._ended)]
        return answers[0] if len(answers) == 1 else answers

    def _answer(self, index: int) -> Mapping[str, object]:
        answer = {**unstreamed(self._ended[index]), "content": "".join(self._texts[index])}
        if self._probabilities[index]:
            answer[_PROBABILITIES] = self._probabilities[index]
        if not self._fields:
            return answer
        hits = {path: _at(answer, path.split("/")) for path in self._fields}
        return {path: hit[0] for path, hit in hits.items() if hit}


def _at(value: object, keys: list[str]) -> tuple[object, ...]:
    """Return the value there; empty where there is none."""
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return ()
        value = value[key]
    return (value,)
