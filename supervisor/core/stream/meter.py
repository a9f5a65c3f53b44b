"""Count the tokens of an answer in the bytes that an engine sends, without parsing them.

llama-server tells them once for each choice, at its end: in `timings`, and where there are none (vectors, ranks,
Anthropic's own form) in `usage`. A quote within a JSON string is escaped, so a model cannot write such a key.

`TailMeter` is for a stream of one choice: after the first token it holds the last pieces alone and looks at them at the
end. An event costs it 0.2 µs. `Meter` searches all that arrives: a large answer in one piece may begin with its
`usage`, and of several choices each ends in a moment of its own.

An answer that ends early tells nothing. Of its prompt that part counts which the engine has reported as read; every
event after that counts as a token.
"""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from supervisor.core.history.records import Spent

_END: Final = b"\n\n"
_LINE_END: Final = b"\r\n"  # of engines other than llama-server, which may put spaces into their JSON, too
_TIMINGS: Final = b'"timings"'
_USAGE: Final = b'"usage"'
_TOLD: Final = re.compile(rb'"(timings|usage)"\s*:\s*\{((?:[^{}]|\{[^{}]*\})*)\}')
_GOES_ON: Final = re.compile(  # with `timings_per_token`
    rb'"finish_reason"\s*:\s*null|"stop"\s*:\s*false|"type"\s*:\s*"[\w.]+\.delta"'
)
_NUMBER: Final = re.compile(rb'"(\w+)"\s*:\s*(\d{1,15})')  # more digits tell of no tokens, and no database holds them
_FIGURE: Final = re.compile(rb'"(\w+)"\s*:\s*(\d{1,15}(?:\.\d{1,15})?)')
_FINISH: Final = re.compile(rb'"(?:finish_reason|stop_reason|stop_type)"\s*:\s*"(\w{1,64})"')
_REASON: Final = b'_reason"'
_TYPE: Final = b'"stop_type"'
_READ: Final = re.compile(rb'"prompt_progress":\{[^{}]*"processed":(\d{1,15})')
_HELD: Final = 1 << 16  # bytes of an event that has not ended
_MOST_TOLD: Final = 4096  # choices
_LAST: Final = 8  # pieces: the finish, its usage and the end come in three events
_PROMPT: Final = frozenset({b"prompt_n", b"cache_n", b"prompt_tokens", b"input_tokens", b"cache_read_input_tokens"})
_COMPLETION: Final = frozenset({b"predicted_n", b"completion_tokens", b"output_tokens"})

Begun = Callable[[], None]
"""Is called when the first token is there."""

Told = dict[tuple[bytes, bytes], None]
"""What an engine has told of tokens, by kind; what is repeated within an answer is there once."""


@dataclass(frozen=True, slots=True)
class SoFar:
    """What has come of an answer that goes on.

    Attributes:
        prompt_tokens: that are read, as far as the engine says it. completion_tokens: that have come, about.
        seconds: since the first of them.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """The speed since the first token; 0 before the second one."""
        return (self.completion_tokens - 1) / self.seconds if self.completion_tokens > 1 and self.seconds > 0 else 0.0


class Meter:
    """The meter of one answer: `hear` every piece, then ask `tokens` or `spent`.

    Attributes:
        reading: no token has come yet.
    """

    def __init__(self, begun: Begun = lambda: None) -> None:
        self._begun = begun
        self._finish: bytes | None = None
        self._events = 0
        self._held = b""
        self._read = 0  # of the prompt
        self.reading = True
        self._told: Told = {}

    def hear(self, piece: bytes) -> None:
        """Take in what has arrived, cut anywhere."""
        piece = (self._held + piece).replace(_LINE_END, b"\n")
        whole, end, self._held = piece.rpartition(_END)
        self._held = self._held[-_HELD:]
        self._count(whole.split(_END) if end else ())
        if _TIMINGS in piece or _USAGE in piece:
            _note(piece.split(_END), self._told)
        if _REASON in piece or _TYPE in piece:
            self._finish = (_FINISH.findall(piece) or [self._finish])[-1]

    def skip(self, events: int) -> None:
        """Take note that so many events are not heard, nor the rest of the one that has begun."""
        self._held = b""
        self._events += events

    def ended_by(self, last: bytes, skipped: int) -> Meter:
        """Return a meter that has heard this one's pieces, let so many events go, and then heard `last`."""
        meter = copy.copy(self)
        meter._told = dict(self._told)
        if skipped:
            meter.skip(skipped)
        meter.hear(last)
        return meter

    def so_far(self) -> tuple[int, int]:
        """Return the tokens of the prompt that are read, and the events that have come since."""
        return self._read, self._events

    def tokens(self) -> tuple[int, int]:
        """Return the tokens of the prompt and of the completion, as far as they are known."""
        return _sums(self._told) or (self._read, self._events)

    def spent(self) -> Spent:
        """Return what the engine told of its work, and the tokens as `tokens` counts them."""
        timings = [said for kind, said in self._told if kind == b"timings"]
        return _spent(self.tokens(), timings or [said for _, said in self._told], self._finish)

    def _count(self, events: Iterable[bytes]) -> None:
        for event in events:
            read = _read(event) if self.reading else None
            if read is not None:
                self._read = max(self._read, read)
            elif event.startswith((b"data:", b"event:")):
                self._goes_on()
                self._events += 1

    def _goes_on(self) -> None:
        """The prompt is read."""
        if self.reading:
            self.reading = False
            self._begun()


class TailMeter:
    """The same for a stream of one choice, cheaper."""

    __slots__ = ("_counted", "_head", "_last", "_seen", "_size")

    def __init__(self, begun: Begun = lambda: None) -> None:
        self._head = Meter(begun)  # of the pieces until the first token
        self._last: deque[bytes] = deque(maxlen=_LAST)
        self._size = 0
        self._counted = 0.0  # events of the first `_seen` bytes
        self._seen = 0

    def hear(self, piece: bytes) -> None:
        """Take in what has arrived, cut anywhere."""
        if self._head.reading:
            self._head.hear(piece)
        else:
            self._size += len(piece)
            self._last.append(piece)

    def so_far(self) -> tuple[int, int]:
        """Return the tokens of the prompt that are read, and about how many events have come since.

        It costs nothing while nobody asks: what has come since the last time is taken to be as long as the last events.
        """
        last = b"".join(self._last).replace(_LINE_END, b"\n")
        if last:
            self._counted += (self._size - self._seen) * last.count(_END) / len(last)
            self._seen = self._size
        read, events = self._head.so_far()
        return read, events + round(self._counted)

    def tokens(self) -> tuple[int, int]:
        """Return the tokens of the prompt and of the completion, as far as they are known."""
        spent = self.spent()
        return spent.prompt_tokens or 0, spent.completion_tokens or 0

    def spent(self) -> Spent:
        """Return what the engine told of its work, and the tokens as `tokens` counts them."""
        last = b"".join(self._last).replace(_LINE_END, b"\n")
        at = last.rfind(_TIMINGS)
        end = last.find(b"}", at) if at >= 0 else -1
        told = last[at:end] if end >= 0 else b""  # there is one choice, so the newest are those of all
        tokens = _sums({(b"timings", told): None})
        if tokens is None:
            return self._without_timings(last).spent()
        finish = _FINISH.findall(last)
        return _spent(tokens, [told], finish[-1] if finish else None)

    def _without_timings(self, last: bytes) -> Meter:
        if self._size <= len(last):
            return self._head.ended_by(last, 0)
        whole = last.partition(_END)[2]  # events that were let go are as long as those that are here
        return self._head.ended_by(whole, round((self._size - len(whole)) * last.count(_END) / len(last)))


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
    for wanted in (b"timings", b"usage"):
        counts = [one for kind, said in told if kind == wanted for one in _NUMBER.findall(said)]
        prompt = [int(count) for name, count in counts if name in _PROMPT]
        completion = [int(count) for name, count in counts if name in _COMPLETION]
        if prompt or completion:
            return sum(prompt), sum(completion)
    return None


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
