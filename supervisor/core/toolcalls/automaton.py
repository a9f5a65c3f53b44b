"""Find the calls in the text of one channel.

Running text is given out at once, but for the longest end that may be the beginning of a marker. Behind a marker a
dialect's reader takes over; if it finds no call, the marker is text and the search goes on behind its first character.
Behind a call its closing tags and the white space around them are dropped, up to the next call or the next text.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.events import Channel, Dropped, LeftAsText, Text
from supervisor.core.toolcalls.lead import read_whole
from supervisor.core.toolcalls.markdown import Code
from supervisor.core.toolcalls.options import Options
from supervisor.core.toolcalls.reading import Reading
from supervisor.core.toolcalls.registry import Registry
from supervisor.core.toolcalls.source import (
    Aside,
    CompleteCall,
    Literals,
    Piece,
    Source,
    Wait,
    one_of,
    peek,
    run_of,
    skip_space,
)  # fmt: skip
from supervisor.core.toolcalls.tools import Tools

Item: TypeAlias = Text | Dropped | LeftAsText | CompleteCall | Piece

_BLANKS: Final = re.compile(r"[ \t]*")
_MAX_BLANKS: Final = 64
_FREE: Final = 512  # characters that an attempt may cost without being counted
_ALLOWANCE: Final = 1024 * 1024
_PER_CHARACTER: Final = 8
_MAX_TRAIL: Final = 512


class Automaton:
    """The search for calls in one channel.

    Args:
        registry: the dialects that are looked for.
        may_stream: calls may be given out in pieces.
    """

    def __init__(
        self, channel: Channel, tools: Tools, options: Options, registry: Registry, *, may_stream: bool
    ) -> None:
        self.channel = channel
        self.items: list[Item] = []
        self._tools = tools
        self._options = options
        self._registry = registry
        self._anywhere = registry.anywhere_literals
        self._line = registry.line_literals
        self._pattern_firsts = registry.pattern_firsts
        self._may_stream = may_stream
        self._src = Source()
        self._sent = 0  # what has been given out
        self._coded = 0  # what `_code` has seen
        self._code = Code()
        self._held = False  # in a reader: nothing is given out as text
        self._calls = 0
        self._brackets = False
        self._failed = False  # something since the last call began like one
        self._asides: list[Aside] = []
        self._spent = 0  # characters read in vain
        self._run = self._text()
        self._resume()

    def feed(self, text: str) -> list[Item]:
        """Return the items that `text` makes certain."""
        self._src.feed(text)
        self._resume()
        return self._taken()

    def finish(self, *, cut: bool) -> list[Item]:
        """Return everything that is left, once the text has ended.

        Args:
            cut: the model was not done.
        """
        self._src.closed = True
        self._src.cut = cut
        self._resume()
        return self._taken()

    def _taken(self) -> list[Item]:
        items, self.items = self.items, []
        return items

    def _resume(self) -> None:
        next(self._run, None)
        if not self._held:
            self._say(self._src.pos)

    # -- giving out ----------------------------------------------------------------------------------------------------

    def _say(self, upto: int) -> None:
        if upto > self._sent:
            self.items.append(Text(self.channel, self._src.slice(self._sent, upto)))
            self._pass(upto)

    def _drop(self, upto: int) -> None:
        if upto > self._sent:
            self.items.append(Dropped(self.channel, self._src.slice(self._sent, upto)))
            self._pass(upto)

    def _pass(self, upto: int) -> None:
        self._sent = upto
        self._src.forget(min(upto, self._coded) if not self._held else upto)

    def _see(self) -> None:
        """Let the code state catch up with the reading position."""
        pos = self._src.pos
        if pos > self._coded:
            self._code.feed(self._src.slice(self._coded, pos))
            self._coded = pos

    # -- running text --------------------------------------------------------------------------------------------------

    def _text(self) -> Wait[None]:
        yield from self._lead()
        while True:
            opener = yield from self._next_opener()
            if not opener:
                return
            if opener in self._registry.think_closers:
                self._src.pos += len(opener)
                self._see()
                yield from self._lead()
            elif opener in self._registry.closers:
                yield from self._trailing()
            else:
                yield from self._attempts(opener)

    def _next_opener(self) -> Wait[str]:
        """Go to the next marker outside of code and return it; empty at the end of the text."""
        src = self._src
        candidate = self._registry.candidate
        while True:
            found = src.find(candidate)
            src.pos = src.end if found < 0 else found
            if found < 0:
                self._see()
                if src.closed:
                    return ""
                yield None
                continue
            if src.ahead(1) == "\n":
                src.pos += 1
                opener = yield from self._line_opener()
            else:
                opener = yield from self._opener()
                src.pos += 0 if opener else 1
            if opener:
                return opener

    def _line_opener(self) -> Wait[str]:
        """Return the marker at this start of a line, if it is one that counts only there."""
        src = self._src
        yield from run_of(src, _BLANKS, _MAX_BLANKS)
        opener = yield from one_of(src, self._line)
        if not opener:
            return ""
        self._see()
        return "" if self._code.is_code() else opener

    def _opener(self) -> Wait[str]:
        """Return the marker at the reading position; empty if there is none."""
        self._see()
        if self._code.is_code():
            return ""
        opener = yield from one_of(self._src, self._anywhere)
        if not opener and self._src.ahead(1) in self._pattern_firsts:
            opener = yield from self._pattern_opener()
        return opener

    def _pattern_opener(self) -> Wait[str]:
        """Return the marker at the reading position, if it is one that no list can hold."""
        for pattern in self._registry.patterns:
            opener = yield from pattern.opener(self._src)
            if opener:
                return opener
        return ""

    def _lead(self) -> Wait[None]:
        """Read the start of the message: some forms are calls only if they are all of it."""
        src = self._src
        yield from skip_space(src)
        self._see()
        char = yield from peek(src)
        if not char:
            return
        opener = yield from one_of(src, self._anywhere)
        if opener:
            return
        opener = yield from one_of(src, self._line)
        if opener:
            yield from self._attempts(opener)
        else:
            yield from self._whole()

    def _trailing(self) -> Wait[None]:
        """Drop a closing tag or end token in the text, if calls came before it and nothing but such tags follows."""
        src = self._src
        at = src.pos
        self._say(at)
        self._held = True
        literals = self._registry.end_literals if self._failed else self._registry.closer_literals
        if self._calls:
            yield from self._skip_closers(at + _MAX_TRAIL, literals)
        if self._calls and src.at_end():
            self._drop(src.pos)
        else:
            src.seek(at + 1)
        self._held = False

    def _skip_closers(self, limit: int, literals: Literals, *, brackets: bool = False) -> Wait[None]:
        src = self._src
        while src.pos < limit:
            yield from skip_space(src)
            closer = yield from one_of(src, literals)
            stray = brackets and src.ahead(1) in {"}", "]"}
            if not closer and not stray:
                return
            src.pos += len(closer) or 1

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _attempts(self, opener: str) -> Wait[None]:
        """Read the call behind the marker that stands here, and all that follow it directly."""
        src = self._src
        self._say(src.pos)
        self._held = True
        while opener:
            at = src.pos
            good = yield from self._attempt(opener, at)
            if not good:
                break
            opener = yield from self._behind_call()
        self._held = False
        self._coded = max(self._coded, self._sent)

    def _attempt(self, opener: str, at: int) -> Wait[bool]:
        """Return whether calls were found. If not, the source stands where the search goes on."""
        src = self._src
        if self._spent > _PER_CHARACTER * at + _ALLOWANCE:
            self._fail(opener, "budget", at)
            return False
        src.pos = at + len(opener)
        block = Block(src, self._tools, self._options, self._registry, self._may_stream)
        state = Reading(self, block)
        self._asides.clear()
        good = yield from state.drive(self._registry.reader(opener)(block, opener))
        self._held = True
        if state.cut_off:
            self._fail(opener, "unknown_tool" if state.passing else "not_a_call", src.end)
            return False
        if state.passing or (good and not state.last_is_call):
            self.items.append(LeftAsText(opener, "unknown_tool"))
            self._failed = True
            yield from self._skip_closers(src.pos + _MAX_TRAIL, self._registry.closer_literals)
            self._say(src.pos)
            self._coded = src.pos
            return False
        if good:
            return True
        if state.calls:
            src.seek(self._sent)
            return True
        self._fail(opener, "too_long" if state.too_long else "not_a_call", at)
        return False

    def _fail(self, opener: str, why: str, at: int) -> None:
        """Treat a marker without a call as text: the search goes on behind its first character.

        After a call that was cut off it does not: what looks like a call there would be part of an argument.

        In a call that was cut off it does not: what looks like a call there would be part of an argument.
        """
        cost = min(self._src.pos - at, self._options.max_hold)
        self._spent += cost if cost > _FREE else 0
        self.items.append(LeftAsText(opener, why))
        self._failed = True
        self._src.seek(min(at + 1, self._src.end))

    def _behind_call(self) -> Wait[str]:
        """Go past what closes a call, and return the marker of the next call, if one follows.

        The source stands at it.
        """
        src = self._src
        self._drop(src.pos)
        self._code.line_start = True
        while True:
            yield from skip_space(src)
            closer = yield from one_of(src, self._registry.closer_literals)
            char = yield from peek(src)
            stray = self._brackets and char in {"}", "]"}
            if closer or stray:
                src.pos += len(closer) or 1
                self._drop(src.pos)
                self._brackets = stray
                continue
            self._coded = max(self._coded, self._sent)
            if not char or self._is_begun_closer():
                src.pos = src.end
                self._drop(src.pos)
                return ""
            if self._code.is_code():
                return ""
            opener = yield from one_of(src, self._anywhere)
            if not opener:
                opener = yield from one_of(src, self._line)
            if not opener and char in self._pattern_firsts:
                opener = yield from self._pattern_opener()
            return "" if opener in self._registry.think_closers else opener

    def _is_begun_closer(self) -> bool:
        """Return whether the text ends here, inside a closing tag."""
        closers, openers = self._registry.closer_literals, self._registry.opener_literals
        rest = self._src.ahead(closers.longest)
        return self._src.closed and rest in closers.prefixes and rest not in openers.prefixes

    def give(self, signal: CompleteCall | Piece) -> None:
        """Pass on a call, or a piece of one, that is certain."""
        self._failed = False
        for aside in self._asides:
            self._drop(aside.start)
            self._say(aside.stop)
        self._asides.clear()
        if isinstance(signal, CompleteCall):
            self._drop(self._src.pos)
            self._calls += 1
        else:
            self._drop(signal.upto)
            self._calls += signal.last
        self._brackets = signal.brackets
        self.items.append(signal)

    def set_aside(self, aside: Aside) -> None:
        """Note a stretch that is text if what is being read turns out to be a call."""
        self._asides.append(aside)

    def pass_on(self) -> None:
        """Pass on as text what has been read for certain."""
        self._say(self._src.certain())

    def held(self) -> int:
        """Return the number of characters held back for the reader, up to where the call may have ended."""
        return self._src.certain() - self._sent

    def _whole(self) -> Wait[None]:
        """Read a form that counts only if it is the whole message."""
        src = self._src
        at = src.pos
        self._say(at)
        self._held = True
        block = Block(src, self._tools, self._options, self._registry, whole=True)
        state = Reading(self, block)
        good = yield from state.drive(read_whole(block))
        if good and state.found:
            brackets = state.found[-1].brackets
            yield from self._skip_closers(src.pos + _MAX_TRAIL, self._registry.closer_literals, brackets=brackets)
        if good and state.found and src.at_end() and not src.cut:
            self._drop(src.pos)
            self._calls += len(state.found)
            self.items += state.found
        else:
            if src.pos - at > _FREE:
                self._spent += min(src.pos - at, self._options.max_hold)
            src.seek(src.end if state.cut_off else at)
        self._held = False
