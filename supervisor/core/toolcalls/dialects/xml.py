"""Calls as tags around parameters: `<function=NAME><parameter=KEY>…` and `<invoke name="NAME"><parameter name="KEY">…`.

Also `<function name="NAME"><param name="KEY">…`, and all of them with a prefix on every tag. Values are plain text, the
tool's schema types them. A closing tag that is missing is implied by what comes instead. Where tags may be part of a
value, `tagvalue` decides.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import NOWHERE, Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects.tagvalue import STOP, Tags, TagValue, read_header, tags_of
from supervisor.core.toolcalls.objects import read_bare_arguments
from supervisor.core.toolcalls.rawvalue import Framing, RawForm
from supervisor.core.toolcalls.source import Resume, Wait, one_of, peek, skip_space, take, take_one, until
from supervisor.core.toolcalls.tools import MAX_NAME

_BARE: Final = {"<function=": "qwen3-coder", "<function name=": "minicpm5", "<invoke name=": "anthropic"}
_NAME: Final = re.compile(r"""\s*+=?\s*+(?:name\s*+=\s*+)?["']?([^"'<>=\n]++)["']?\s*+""")


def read_functions(block: Block, dialect: str, prefix: str = "", framing: Framing = "each") -> Wait[bool]:
    """Read calls one after another; the source stands at the first one's tag, or white space before it."""
    src, tags = block.src, tags_of(block.registry, prefix)
    last = -1
    while True:
        yield from skip_space(src)
        begin = yield from one_of(src, tags.calls)
        if not begin:
            if last >= 0:
                src.seek(last)
            return last >= 0
        src.pos += len(begin)
        good = yield from _Function(block, dialect, tags, framing).read()
        if not good:
            return False
        last = src.pos
        yield Resume()


def read_bare(block: Block, opener: str) -> Wait[bool]:
    """Read a call without anything around it."""
    block.src.seek(block.src.pos - len(opener))
    return (yield from read_functions(block, _BARE[opener]))


class _Function:
    def __init__(self, block: Block, dialect: str, tags: Tags, framing: Framing) -> None:
        self.block = block
        self.src = block.src
        self.tags = tags
        self.raw: RawForm = {"framing": framing, "cdata": dialect == "minicpm5"}
        self.dialect = dialect
        self.writer = CallWriter(block, NOWHERE, dialect)
        self.values: list[TagValue] = []  # read, but not written: one before them may turn out to be several
        self.seen: set[str] = set()
        self.count = 0

    def read(self) -> Wait[bool]:
        header = yield from until(self.src, STOP, MAX_NAME)
        named = _NAME.fullmatch(header or "")
        closed = yield from take(self.src, ">")
        name = named[1].strip() if named else ""
        if not name or not closed:
            return False
        tool = yield from self.block.resolve(name)
        yield from skip_space(self.src)
        char = yield from peek(self.src)
        dialect = "functionary-v3.1" if char == "{" and self.dialect == "qwen3-coder" else self.dialect
        self.writer = CallWriter(self.block, tool, dialect)
        if char == "{":
            return (yield from read_bare_arguments(self.block, self.writer))
        good = yield from self._parameters()
        if not good:
            return (yield from self.writer.broken())
        for value in self.values:
            yield from value.write(self.writer, self.seen)
        yield from self.writer.end()
        return True

    def _parameters(self) -> Wait[bool]:
        """Read everything up to the end of the call; return False if this is no call, or was cut."""
        src, tags = self.src, self.tags
        while True:
            yield from skip_space(src)
            begins = yield from take(src, tags.parameter)
            if begins:
                good = yield from self._parameter()
                if not good:
                    return False
                continue
            closer = yield from take_one(src, tags.parameter_closers)
            if closer and self.count:
                continue
            closer = yield from take_one(src, tags.call_closers)
            if closer:
                return True
            return (yield from self._implied())

    def _implied(self) -> Wait[bool]:
        """Return whether the call ends here although its own closing tag is missing."""
        self.writer.repaired = True
        closer = yield from one_of(self.src, self.tags.outer_closers)
        if closer:
            return True
        if not self.count:
            return False
        if self.src.at_end():
            return not self.src.cut
        opener = yield from one_of(self.src, self.tags.openers)
        return bool(opener)

    def _parameter(self) -> Wait[bool]:
        """Read one parameter; the source stands behind `<param`."""
        self.count += 1
        key, hint = yield from read_header(self.src)
        self.writer.repaired |= not key or key in self.seen
        value = TagValue(self.block, self.tags, key, hint, self.raw)
        good = yield from value.read(self.writer, self.seen, early=not self.values)
        self.seen.add(key)
        self.writer.repaired |= value.repaired
        if not good or not key:
            return good
        self.values.append(value)
        if not value.splits and len(self.values) == 1:
            yield from self.values.pop().write(self.writer, self.seen)
        return True


DIALECTS: Final = (
    Dialect(
        id="qwen3-coder",
        models="Qwen3-Coder, Qwen3.5 and later, Nemotron 3 Nano, Step 3.5 Flash",
        openers={"<function=": read_bare},
        closers=("</function>", "</parameter>"),
        marks=(("<tool_call>", "<function="),),
        precedence=1,
        swallowed=(("<tool_call>", "<function=", "<parameter="),),
    ),
    Dialect(
        id="functionary-v3.1",
        models="Functionary v3.1, Llama 3 with custom tools",
        marks=(("<function=",),),
        precedence=1,
    ),
    Dialect(
        id="minicpm5",
        models="MiniCPM5",
        openers={"<function name=": read_bare},
        marks=(('<function name="', '<param name="'),),
        precedence=1,
    ),
)
