"""The outline of a large request: its JSON with a mark in place of whatever is long.

What makes requests large are images and documents, texts in which the relay has no interest. `Outliner` reads a body
piece by piece as it arrives and builds nothing of it: it notes where the long texts of messages lie. Without them the
body is small and can be parsed and changed like any other. `Outline.pieces` puts the texts back into what goes to the
engine, as the client wrote them.

A field of the request that stays large without its long texts (a list of a hundred thousand numbers) is left out as a
whole: nothing in it can be looked at then (`Outline.opaque`). What is left out is not checked, for the engine checks
everything. Duplicate keys, escapes in keys and any nesting count as in `json.loads`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

Payload = bytes | Sequence[bytes | memoryview]
"""A request's body: in one, or in pieces that are sent one after the other."""

_WHOLE_MARK: Final = re.compile(rb'"([0-9A-Za-z]{1,64}):(\d{1,9}):"')
_WHOLE_CHARACTERS: Final = re.compile(r"(?:[^\\]|\\u[0-9a-fA-F]{4}|\\[^u])*+")
_BYTES_OF_A_CHARACTER: Final = 12  # two escapes of six
_WHOLE: Final = b":"  # behind the marker of a whole field
MARK_BYTES: Final = 32
"""Approximate bytes of a mark."""
_JOINED: Final = 1 << 15  # pieces below this are sent together


@dataclass(frozen=True, slots=True)
class Outline:
    """The outline of one request.

    Attributes:
        text: the outline.
        opaque: a field was left out as a whole.
    """

    text: bytes
    opaque: bool
    _body: memoryview
    _spans: tuple[tuple[int, int], ...]
    _marker: str
    _added: tuple[bytes, ...] = ()

    def with_text(self, text: bytes) -> tuple[Outline, str]:
        """Return the outline with one more text that is left out, and its mark, which stands for it within a string.

        text: as it stands in JSON, escaped.
        """
        mark = mark_of(self._marker, len(self._spans) + len(self._added), whole=False).decode()
        return replace(self, _added=(*self._added, text)), mark

    def hidden(self) -> Iterator[memoryview]:
        """Yield the fields that were left out as a whole."""
        marker = self._marker.encode()
        whole = {int(found[2]) for found in _WHOLE_MARK.finditer(self.text) if found[1] == marker}
        return (self._body[start:stop] for number, (start, stop) in enumerate(self._spans) if number in whole)

    def pieces(self, payload: bytes) -> Payload:
        """Return JSON that was made of the outline, with everything that was left out put back in its place."""
        return tuple(_joined(self._parts(payload)))

    def heads(self, value: object, size: int) -> object:
        """Return a value of the outline with the first `size` characters of each text in the place of its mark."""
        if isinstance(value, str):
            return "".join(self._headed(value, size)) if self._marker in value else value
        if isinstance(value, list):
            return [self.heads(one, size) for one in value]
        if isinstance(value, dict):
            return {key: self.heads(one, size) for key, one in value.items()}
        return value

    def _parts(self, payload: bytes) -> Iterator[bytes | memoryview]:
        text, *others = payload.split(self._marker.encode())
        for other in others:
            number, _, after = other[1:].partition(other[:1])
            whole = other[:1] == _WHOLE  # it stands in the place of a value, quotes and all
            yield text[: len(text) - whole]
            yield self._left_out(int(number))
            text = after[whole:]
        yield text

    def _left_out(self, number: int) -> bytes | memoryview:
        if number >= len(self._spans):
            return self._added[number - len(self._spans)]
        start, stop = self._spans[number]
        return self._body[start:stop]

    def _headed(self, value: str, size: int) -> Iterator[str]:
        text, *others = value.split(self._marker)
        yield text
        for other in others:
            number, _, after = other[1:].partition(other[:1])
            yield from (self._head(int(number), size), after)

    def _head(self, number: int, size: int) -> str:
        raw = bytes(self._left_out(number)[: size * _BYTES_OF_A_CHARACTER]).decode("utf-8", "ignore")
        whole = _WHOLE_CHARACTERS.match(raw)
        try:
            text: str = json.loads(f'"{whole[0] if whole else ""}"', strict=False)
        except ValueError:
            text = raw  # a field that is no string, or broken: only its beginning counts
        return text[:size]


def _joined(parts: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the same bytes in fewer pieces."""
    small: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        if len(part) < _JOINED:
            small.append(part)
            size += len(part)
        if small and (len(part) >= _JOINED or size >= _JOINED):
            yield b"".join(small)
            small, size = [], 0
        if len(part) >= _JOINED:
            yield part
    if small:
        yield b"".join(small)


def of_small(text: bytes, marker: str) -> Outline:
    """Return the outline of a request that leaves nothing out yet. marker: letters and digits that are not in it."""
    return Outline(text, opaque=False, _body=memoryview(b""), _spans=(), _marker=marker)


def mark_of(marker: str, number: int, *, whole: bool) -> bytes:
    """Return the mark of what was left out of the outline: within the quotes of a string, or for a `whole` value."""
    return (f'"{marker}:{number}:"' if whole else f"{marker}.{number}.").encode()
