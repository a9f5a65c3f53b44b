"""Read a value that stands as plain text between tags.

The text may hold the closing tag itself: code about tool calls does. So a candidate for the end counts only if what
follows it is what the format goes on with; who knows the format judges that. Where even that leaves a doubt, the value
goes on, and ends at the doubtful place only if no better one comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.jsontext import quote
from supervisor.core.toolcalls.schema import STRING, Types
from supervisor.core.toolcalls.source import Literals, Wait, need, one_of, skip_space

Framing: TypeAlias = Literal["each", "pair", "none"]
"""Line breaks around the value that belong to the format: one on each side, one on both or none, none."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A candidate that ends the value.

    Attributes:
        resume: the position at which reading goes on.
        sure: False: it ends the value only if no sure one comes.
    """

    resume: int
    sure: bool = True


EARLIER: Final = Ending(-1)
"""The text here shows that the first doubtful candidate was the end."""

Judge: TypeAlias = Callable[[str], "Wait[Ending | None]"]
"""The candidate that stands at the source's position → whether it ends the value. May move the position."""

_MAX_DOUBT: Final = 64 * 1024  # characters behind a doubtful end
_BREAKS: Final = ("\r\n", "\n")
_HELD: Final = 2  # the longest line break
_CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"
_CDATA_CLOSES: Final = re.compile(re.escape(_CDATA_END))


class RawForm(TypedDict):
    """The form of a tag's value; see `RawValue`."""

    framing: Framing
    cdata: bool


class RawValue:
    """A value between tags.

    Args:
        mark: finds the first character of a candidate.
        candidates: what may end the value.
        judge: see `Judge`.
        cdata: the value may be wrapped as character data.

    Attributes:
        ended: False if the text ended instead of the value.
        start, stop: where the value stands, once it has been read.
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
        self.start = self.stop = self.src.pos
        self._given = 0
        self._hold = -1  # from here on nothing is written before the value is settled
        self._doubt: tuple[int, int] | None = None  # the first doubtful end, and where reading goes on behind it
        self._writer: CallWriter | None = None

    def read(self, writer: CallWriter | None, key: str, hint: Types | None = None) -> Wait[bool]:
        """Read the value and write it as argument `key`; without a writer, only read.

        Return False if the turn was cut inside.

        Args:
            hint: what the format itself says of the type.
        """
        good = yield from self.scan(writer, key, hint)
        if good and writer is not None:
            yield from self.write(writer, key, hint)
        return good

    def scan(self, writer: CallWriter | None, key: str = "", hint: Types | None = None) -> Wait[bool]:
        """Read the value, which `write` has to follow. A long string goes to the writer while it arrives."""
        yield from self._begin(writer, key, hint)
        stop = yield from self._end()
        self.src.doubt = -1
        self.stop = max(stop, self.start)
        return stop >= 0

    def write(self, writer: CallWriter, key: str, hint: Types | None = None, *, stop: int | None = None) -> Wait[None]:
        """Write what has been read, up to `stop`."""
        stop = self.stop if stop is None else stop
        self._hold = -1
        if self._writer is not None:
            yield from self._give(stop, last=True)
            yield from self._writer.end_string()
            self._writer.upto = -1
        else:
            yield from writer.value(key, writer.tool.from_text(key, self.text(self.start, stop), hint))

    def text(self, start: int, stop: int) -> str:
        """Return the value between two positions, without the line breaks that belong to the format."""
        return self._framed(self.src.slice(start, stop))

    def hold(self, pos: int) -> None:
        """Give nothing out from this position on before `write`."""
        if self._hold < 0:
            self._hold = pos

    def _begin(self, writer: CallWriter | None, key: str, hint: Types | None) -> Wait[None]:
        src = self.src
        self.start = src.pos
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
        """Return the end of the value, with the source where reading goes on; -1 if the text is cut."""
        src = self.src
        if self.cdata:
            yield from self._skip_cdata()
        while True:
            found = src.find(self.mark)
            src.pos = src.end if found < 0 else found
            if self._doubt and src.pos - self._doubt[0] > _MAX_DOUBT:
                return self._doubtful()
            if found < 0 and src.closed:
                return self._at_end()
            yield from self._give(src.pos - _HELD)
            if found < 0:
                yield None
                continue
            src.doubt = self._doubt[0] if self._doubt else found
            literal = yield from one_of(src, self.candidates)
            ending = (yield from self.judge(literal)) if literal else None
            if ending is EARLIER and self._doubt:
                return self._doubtful()
            if ending and (ending.sure or not src.is_patient()):
                src.seek(ending.resume)
                return found
            if src.closed and src.cut:
                return -1  # inside what may have been the end
            src.seek(found)
            if ending and not self._doubt:
                self._doubt = (found, ending.resume)
                self.hold(found)
            src.doubt = self._doubt[0] if self._doubt else -1
            src.pos += 1

    def _doubtful(self) -> int:
        """End at the first place that could be the end."""
        src = self.src
        stop, resume = self._doubt or (src.end, src.end)
        src.doubted += src.pos - stop
        src.seek(resume)
        return stop

    def _at_end(self) -> int:
        """Return the end of the value when its text is over."""
        if self.src.cut:
            self.ended = False
            return -1
        if self._doubt:
            return self._doubtful()
        self.ended = False
        return self._without_tail()

    def _skip_cdata(self) -> Wait[None]:
        """Go past character data: up to the end mark that may end the value, else up to the first one."""
        src = self.src
        if src.ahead(len(_CDATA)) != _CDATA:
            return
        first = -1
        while True:
            found = src.find(_CDATA_CLOSES)
            if found < 0:
                if src.closed:
                    src.seek(src.end if first < 0 else first)
                    return
                src.pos = max(src.pos, src.end - len(_CDATA_END))
                yield None
                continue
            src.pos = found + len(_CDATA_END)
            first = src.pos if first < 0 else first
            resume = src.pos
            yield from skip_space(src)
            closer = yield from one_of(src, self.candidates)
            src.seek(resume)
            if closer:
                return

    def _give(self, stop: int, *, last: bool = False) -> Wait[None]:
        """Write the string up to `stop`."""
        if self._hold >= 0:
            stop = min(stop, self._hold - _HELD)
        if self._writer is None or stop <= self._given:
            return
        text = self.src.slice(self._given, stop)
        if last and self.framing == "each":
            text = self._unbroken(text)
        self._given = self._writer.upto = stop
        if text:
            yield from self._writer.string_part(quote(text)[1:-1])

    def _without_tail(self) -> int:
        """Return the end of the text, less the beginning of a closing tag that never came."""
        src = self.src
        stop = src.end
        begin = self.start if self._writer is None else self._given
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
