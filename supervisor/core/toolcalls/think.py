"""Cut a think block off the start of the content.

White space inside the tags' edges and behind the block belongs to the tags. A closing tag alone says nothing unless
the prompt has opened the block.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from supervisor.core.toolcalls.registry import Registry
from supervisor.core.toolcalls.source import Literals, Source, Wait, one_of, peek, skip_space

_SPACE: Final = " \t\r\n"
_MAX_SPACE: Final = 27

Say = Callable[[str], None]
"""Receives text."""


class ThinkSplitter:
    """A router of content: thoughts to one receiver, the rest to another.

    Args:
        registry: the dialects whose tags count.
        think: receives what was thought; `content`: the rest; `drop`: the tags and the space around them.
        closed: called once when the block is over.
        is_open: the content begins inside the block.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        think: Say,
        content: Say,
        drop: Say,
        closed: Callable[[], None],
        is_open: bool,
    ) -> None:
        self._registry = registry
        self._think = think
        self._content = content
        self._drop = drop
        self._closed = closed
        self._src = Source()
        self._sent = 0
        self._closers = registry.think_closer_literals
        self._is_open = is_open
        self._over = False
        self._run = self._split()
        next(self._run, None)

    def feed(self, text: str) -> None:
        """Pass on what is certain."""
        if self._over:
            self._content(text)
            return
        self._src.feed(text)
        next(self._run, None)

    def finish(self) -> None:
        """Pass on the rest."""
        self._src.closed = True
        next(self._run, None)

    def _give(self, say: Say, upto: int) -> None:
        if upto > self._sent:
            say(self._src.slice(self._sent, upto))
            self._sent = upto
            self._src.forget(upto)

    def _split(self) -> Wait[None]:
        src = self._src
        opened = yield from self._opened()
        if opened:
            closed = yield from self._thought()
            if closed:
                self._closed()
            yield from skip_space(src)
            after = yield from one_of(src, self._registry.answer_literals)
            src.pos += len(after)
            self._give(self._drop, src.pos)
        self._over = True
        self._give(self._content, src.end)

    def _opened(self) -> Wait[bool]:
        src = self._src
        space = yield from self._leading_space()
        if not space:
            return self._is_open
        opener = yield from one_of(src, self._registry.think_literals)
        if opener:
            self._closers = Literals([self._registry.think[opener]])
        elif not self._is_open:
            return False
        src.pos += len(opener)
        yield from skip_space(src)
        self._give(self._drop, src.pos)
        return True

    def _leading_space(self) -> Wait[bool]:
        """Go past white space at the start; return False if it is more than may be held back."""
        src = self._src
        while True:
            char = yield from peek(src)
            if not char or char not in _SPACE:
                return True
            if src.pos >= _MAX_SPACE:
                return self._is_open
            src.pos += 1

    def _thought(self) -> Wait[bool]:
        """Pass on everything up to the closing tag, and drop the tag with the space before it.

        Return False if none comes.
        """
        src = self._src
        mark = re.compile("[" + re.escape("".join({text[0] for text in self._closers.texts})) + "]")
        while True:
            found = src.find(mark)
            src.pos = src.end if found < 0 else found
            if found < 0 and src.closed:
                self._give(self._think, src.end)
                return False
            self._give(self._think, self._solid(src.pos))
            if found < 0:
                yield None
                continue
            closer = yield from one_of(src, self._closers)
            if closer:
                src.pos += len(closer)
                self._give(self._drop, src.pos)
                return True
            src.pos += 1

    def _solid(self, upto: int) -> int:
        """Return `upto` without the white space before it, as far as that may be held back."""
        space = 0
        text = self._src.slice(max(self._sent, upto - _MAX_SPACE), upto)
        space = len(text) - len(text.rstrip(_SPACE))
        return upto - space
