"""Reads a value that stands as plain text between tags.

The text may hold the closing tag itself: code about tool calls does. So a candidate for the end counts only if what
follows it is what the format goes on with; who knows the format judges that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.jsontext import quote
from supervisor.core.toolcalls.schema import STRING, Types
from supervisor.core.toolcalls.source import Literals, Wait, need, one_of

Framing: TypeAlias = Literal["each", "pair", "none"]
"""Line breaks around the value that belong to the format: one on each side, one on both or none, none."""

Judge: TypeAlias = Callable[[str], "Wait[int]"]
"""The candidate that stands at the source's position → where reading goes on if it ends the value, else -1.
May move the position."""

_BREAKS: Final = ("\r\n", "\n")
_HELD: Final = 2  # the longest line break
_CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"


class RawValue:
    """One value.

    Args:
        mark: finds the first character of a candidate.
        candidates: what may end the value.
        judge: see `Judge`.
        cdata: the value may be wrapped as character data.

    Attributes:
        ended: False if the text ended instead of the value.
    """

    def __init__(
        self,
        block: Block,
        candidates: Literals,
        judge: Judge,
        *,
        framing: Framing = "none",
        mark: re.Pattern[str] = re.compile("<"),
        cdata: bool = False,
    ) -> None:
        self.src = block.src
        self.candidates = candidates
        self.judge = judge
        self.framing = framing
        self.mark = mark
        self.cdata = cdata
        self.ended = True
        self._start = self._given = 0
        self._writer: CallWriter | None = None

    def read(self, writer: CallWriter | None, key: str, hint: Types | None = None) -> Wait[bool]:
        """Read the value and write it as argument `key`; no writer: only read. False if the turn was cut inside.

        Args:
            hint: what the format itself says of the type.
        """
        yield from self._begin(writer, key, hint)
        stop = yield from self._end()
        if stop < 0:
            return False
        if self._writer is not None:
            yield from self._give(stop, last=True)
            yield from self._writer.end_string()
            self._writer.upto = -1
        elif writer is not None:
            text = self._framed(self.src.slice(self._start, stop))
            yield from writer.value(key, writer.tool.from_text(key, text, hint))
        return True

    def _begin(self, writer: CallWriter | None, key: str, hint: Types | None) -> Wait[None]:
        src = self.src
        self._start = src.pos
        yield from need(src, len(_CDATA) if self.cdata else 2)
        lead = next((one for one in _BREAKS if src.ahead(2).startswith(one)), "")
        plain = writer is not None and writer.tool.is_plain_string(key)
        if not plain or hint not in {None, STRING} or self.cdata or (lead and self.framing == "pair"):
            return
        self._given = src.pos + (len(lead) if self.framing == "each" else 0)
        self._writer = writer
        if writer is not None:
            writer.begin_string(key)

    def _end(self) -> Wait[int]:
        """Where the value ends, with the source where reading goes on; -1 if the text is cut."""
        src = self.src
        if self.cdata:
            yield from self._skip_cdata()
        while True:
            found = src.find(self.mark)
            src.pos = src.end if found < 0 else found
            if found < 0 and src.closed:
                self.ended = False
                return -1 if src.cut else self._without_tail()
            yield from self._give(src.pos - _HELD)
            if found < 0:
                yield None
                continue
            literal = yield from one_of(src, self.candidates)
            resume = -1
            if literal:
                resume = yield from self.judge(literal)
            if resume >= 0:
                src.seek(resume)
                return found
            if src.closed and src.cut:
                return -1  # inside what may have been the end
            src.seek(found + 1)

    def _skip_cdata(self) -> Wait[None]:
        src = self.src
        if src.ahead(len(_CDATA)) != _CDATA:
            return
        closer = re.compile(re.escape(_CDATA_END))
        while True:
            found = src.find(closer)
            if found >= 0 or src.closed:
                src.pos = src.end if found < 0 else found
                return
            src.pos = max(src.pos, src.end - len(_CDATA_END))
            yield None

    def _give(self, stop: int, *, last: bool = False) -> Wait[None]:
        """Write the string up to `stop`."""
        if self._writer is None or stop <= self._given:
            return
        text = self.src.slice(self._given, stop)
        if last and self.framing == "each":
            text = self._unbroken(text)
        self._given = self._writer.upto = stop
        if text:
            yield from self._writer.string_part(quote(text)[1:-1])

    def _without_tail(self) -> int:
        """The end of the text, less the beginning of a closing tag that never came."""
        src = self.src
        stop = src.end
        begin = self._start if self._writer is None else self._given
        for length in range(min(self.candidates.longest, stop - begin), 0, -1):
            if src.slice(stop - length, stop) in self.candidates.prefixes:
                return stop - length
        return stop

    def _framed(self, text: str) -> str:
        if self.cdata:
            inner = text.strip()
            if inner.startswith(_CDATA):
                return inner[len(_CDATA) :].removesuffix(_CDATA_END)
        lead = next((one for one in _BREAKS if text.startswith(one)), "")
        if self.framing == "none" or (self.framing == "pair" and not (lead and len(text) > len(lead))):
            return text
        inner = self._unbroken(text[len(lead) :])
        return text if self.framing == "pair" and inner == text[len(lead) :] else inner

    def _unbroken(self, text: str) -> str:
        return next((text[: -len(one)] for one in _BREAKS if text.endswith(one)), text)
