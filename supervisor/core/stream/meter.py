"""Count the tokens of an answer in the bytes that an engine sends, without parsing them.

llama-server tells them once for each choice, at its end: in `timings`, and where there are none (vectors, ranks,
Anthropic's own form) in `usage`. A quote within a JSON string is escaped, so a model cannot write such a key.

`TailMeter` is for a stream of one choice: it holds the first pieces and the last ones, and looks at them at the end. An
event costs it 0.2 µs. `Meter` searches all that arrives: a large answer in one piece may begin with its `usage`, and of
several choices each ends in a moment of its own.

An answer that ends early tells nothing. Of its prompt that part counts which the engine has reported as read; every
event after that counts as a token.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from supervisor.core.history.records import Spent

_END: Final = b"\n\n"
_TIMINGS: Final = b'"timings":'
_USAGE: Final = b'"usage":'
_TOLD: Final = re.compile(rb'"(timings|usage)":\{((?:[^{}]|\{[^{}]*\})*)\}')
_GOES_ON: Final = re.compile(rb'"finish_reason":null|"stop":false|"type":"[\w.]+\.delta"')  # with `timings_per_token`
_NUMBER: Final = re.compile(rb'"(\w+)":(\d+)')
_FIGURE: Final = re.compile(rb'"(\w+)":(\d+(?:\.\d+)?)')
_FINISH: Final = re.compile(rb'"(?:finish_reason|stop_reason|stop_type)":"(\w{1,64})"')
_READ: Final = re.compile(rb'"prompt_progress":\{[^{}]*"processed":(\d+)')
_HELD: Final = 1 << 16  # bytes of an event that has not ended
_MOST_TOLD: Final = 4096  # choices
_FIRST: Final = 64  # pieces before the first token
_LAST: Final = 8  # pieces: the finish, its usage and the end come in three events
_PROMPT: Final = frozenset({b"prompt_n", b"cache_n", b"prompt_tokens", b"input_tokens", b"cache_read_input_tokens"})
_COMPLETION: Final = frozenset({b"predicted_n", b"completion_tokens", b"output_tokens"})

Begun = Callable[[], None]
"""Is called when the first token is there."""

Told = dict[tuple[bytes, bytes], None]
"""What an engine has told of tokens, by kind; what is repeated within an answer is there once."""


class Meter:
    """The meter of one answer: `hear` every piece, then ask `tokens` or `spent`."""

    def __init__(self, begun: Begun = lambda: None) -> None:
        self._begun = begun
        self._finish: bytes | None = None
        self._events = 0
        self._held = b""
        self._read = 0  # of the prompt
        self._reading = True
        self._told: Told = {}

    def hear(self, piece: bytes) -> None:
        """Take in what has arrived, cut anywhere."""
        piece = self._held + piece
        whole, end, self._held = piece.rpartition(_END)
        self._held = self._held[-_HELD:]
        self._count(whole.split(_END) if end else ())
        if _TIMINGS in piece or _USAGE in piece:
            _note(piece.split(_END), self._told)
            self._finish = (_FINISH.findall(piece) or [self._finish])[-1]

    def skip(self, events: int) -> None:
        """Take note that so many events are not heard, nor the rest of the one that has begun."""
        self._held = b""
        self._events += events

    def tokens(self) -> tuple[int, int]:
        """Return the tokens of the prompt and of the completion, as far as they are known."""
        return _sums(self._told) or (self._read, self._events)

    def spent(self) -> Spent:
        """Return what the engine told of its work, and the tokens as `tokens` counts them."""
        timings = [said for kind, said in self._told if kind == b"timings"]
        return _spent(self.tokens(), timings or [said for _, said in self._told], self._finish)

    def _count(self, events: Iterable[bytes]) -> None:
        for event in events:
            read = _read(event) if self._reading else None
            if read is not None:
                self._read = max(self._read, read)
            elif event.startswith((b"data:", b"event:")):
                self._goes_on()
                self._events += 1

    def _goes_on(self) -> None:
        """The prompt is read."""
        if self._reading:
            self._reading = False
            self._begun()


class TailMeter:
    """The same for a stream of one choice, cheaper."""

    __slots__ = ("_begun", "_first", "_last", "_reading", "_size")

    def __init__(self, begun: Begun = lambda: None) -> None:
        self._begun = begun
        self._first: list[bytes] = []
        self._last: deque[bytes] = deque(maxlen=_LAST)
        self._reading = True
        self._size = 0

    def hear(self, piece: bytes) -> None:
        """Take in what has arrived, cut anywhere."""
        if self._reading:
            self._first.append(piece)
            if len(self._first) >= _FIRST or (_READ.search(piece) is None and piece[:1] != b":"):
                self._reading = False
                self._begun()
        else:
            self._size += len(piece)
            self._last.append(piece)

    def tokens(self) -> tuple[int, int]:
        """Return the tokens of the prompt and of the completion, as far as they are known."""
        last = b"".join(self._last or self._first)
        at = last.rfind(_TIMINGS)
        end = last.find(b"}", at) if at >= 0 else -1
        if end >= 0:  # there is one choice, so the newest are those of all
            return _sums({(b"timings", last[at:end]): None}) or (0, 0)
        return self._without_timings(b"".join(self._last))

    def spent(self) -> Spent:
        """Return what the engine told of its work, and the tokens as `tokens` counts them."""
        last = b"".join(self._last or self._first)
        at = last.rfind(_TIMINGS)
        at = last.rfind(_USAGE) if at < 0 else at
        end = last.find(b"}", at) if at >= 0 else -1
        finish = _FINISH.findall(last)
        return _spent(self.tokens(), [last[at:end]] if end >= 0 else [], finish[-1] if finish else None)

    def _without_timings(self, last: bytes) -> tuple[int, int]:
        meter = Meter()
        for piece in self._first:
            meter.hear(piece)
        if self._size > len(last):  # events that were let go are as long as those that are here
            whole = last.partition(_END)[2]
            meter.skip(round((self._size - len(whole)) * last.count(_END) / len(last)))
            last = whole
        meter.hear(last)
        return meter.tokens()


def _read(event: bytes) -> int | None:
    """Return how much of the prompt is read, if the event says so."""
    found = _READ.search(event)
    return None if found is None else int(found[1])


def _note(events: Iterable[bytes], told: Told) -> None:
    for event in events:
        if _GOES_ON.search(event) is None and len(told) < _MOST_TOLD:
            told.update(dict.fromkeys(_TOLD.findall(event)))


def _sums(told: Told) -> tuple[int, int] | None:
    """Return the tokens that were told of: those of `timings`, which come for each choice, or else of `usage`."""
    if not told:
        return None
    timings = [said for kind, said in told if kind == b"timings"]
    prompt = completion = 0
    for said in timings or [said for _, said in told]:
        for name, count in _NUMBER.findall(said):
            if name in _PROMPT:
                prompt += int(count)
            elif name in _COMPLETION:
                completion += int(count)
    return prompt, completion


def _spent(tokens: tuple[int, int], told: Iterable[bytes], finish: bytes | None) -> Spent:
    """Return the sums over choices of what was told."""
    figures: dict[bytes, float] = {}
    for said in told:
        for name, figure in _FIGURE.findall(said):
            figures[name] = figures.get(name, 0.0) + float(figure)
    cached = figures.get(b"cache_n", figures.get(b"cached_tokens", figures.get(b"cache_read_input_tokens")))
    return Spent(
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        cached_tokens=None if cached is None else int(cached),
        prompt_ms=figures.get(b"prompt_ms"),
        predicted_ms=figures.get(b"predicted_ms"),
        finish=None if finish is None else finish.decode(),
    )
