"""Count the tokens of an answer in the bytes that an engine sends, without parsing them.

llama-server tells them once for each choice, at its end: in `timings`, and where there are none (vectors, ranks,
Anthropic's own form) in `usage`. A quote within a JSON string is escaped, so a model cannot write such a key. Only the
piece that has one is looked at closely; any other costs two searches and a count.

An answer that ends early tells nothing. Of its prompt that part counts which the engine has reported as read; every
event after that counts as a token.
"""

from __future__ import annotations

import re
from typing import Final

_END: Final = b"\n\n"
_TIMINGS: Final = b'"timings":'
_USAGE: Final = b'"usage":'
_PROGRESS: Final = b'"prompt_progress":'
_TOLD: Final = re.compile(rb'"(timings|usage)":\{((?:[^{}]|\{[^{}]*\})*)\}')
_GOES_ON: Final = re.compile(rb'"finish_reason":null|"stop":false|\.delta"')  # with `timings_per_token`
_NUMBER: Final = re.compile(rb'"(\w+)":(\d+)')
_READ: Final = re.compile(rb'"prompt_progress":\{[^{}]*"processed":(\d+)')
_HELD: Final = 1 << 16  # bytes of an event that has not ended
_MOST_TOLD: Final = 4096  # choices
_PROMPT: Final = frozenset({b"prompt_n", b"cache_n", b"prompt_tokens", b"input_tokens", b"cache_read_input_tokens"})
_COMPLETION: Final = frozenset({b"predicted_n", b"completion_tokens", b"output_tokens"})


class Meter:
    """The meter of one answer: `hear` every piece, then ask `tokens`."""

    __slots__ = ("_events", "_held", "_read", "_reading", "_told")

    def __init__(self) -> None:
        self._events = 0
        self._held = b""
        self._read = 0
        self._reading = True  # the prompt is, as far as is known
        self._told: dict[tuple[bytes, bytes], None] = {}  # what is repeated within an answer counts once

    def hear(self, piece: bytes) -> None:
        """Take in what has arrived, cut anywhere."""
        if self._held:
            piece = self._held + piece
            self._held = b""
        if self._reading:
            self._progress(piece)
        else:
            self._events += piece.count(_END)
        if _TIMINGS in piece or _USAGE in piece:
            self._note(piece)
        if not piece.endswith(_END):
            self._held = piece.rpartition(_END)[2][-_HELD:]

    def tokens(self) -> tuple[int, int]:
        """Return the tokens of the prompt and of the completion, as far as they are known."""
        timings = [said for kind, said in self._told if kind == b"timings"]
        told = timings or [said for _, said in self._told]
        if not told:
            return self._read, self._events
        numbers = [(name, int(count)) for said in told for name, count in _NUMBER.findall(said)]
        prompt = sum(count for name, count in numbers if name in _PROMPT)
        return prompt, sum(count for name, count in numbers if name in _COMPLETION)

    def _progress(self, piece: bytes) -> None:
        """Look for what the engine says of the prompt, until it says something else."""
        for event in piece.split(_END)[:-1]:
            found = _READ.search(event)
            if found is not None:
                self._read = max(self._read, int(found[1]))
            elif event.startswith((b"data:", b"event:")):
                self._reading = False
                self._events += 1

    def _note(self, piece: bytes) -> None:
        for event in piece.split(_END):
            if _GOES_ON.search(event) is None and len(self._told) < _MOST_TOLD:
                self._told.update(dict.fromkeys(_TOLD.findall(event)))
