"""Calls as a name and pairs of tags: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`.

The tags may have a prefix or, learnt from the first of them, a suffix. Tags that models leave out or double are
optional where the meaning stays clear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from supervisor.core.toolcalls.block import NOWHERE, Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects import python
from supervisor.core.toolcalls.rawvalue import Ending, RawValue
from supervisor.core.toolcalls.source import (
    Literals,
    Resume,
    Wait,
    one_of,
    peek,
    run_of,
    skip_space,
    take,
    until,
)
from supervisor.core.toolcalls.tools import MAX_NAME

_STOP: Final = re.compile(r"[<\n({\[]")
_KEY_STOP: Final = re.compile(r"[<>\n]")
_WORD: Final = re.compile(r"[\w.:\-/ ]+")
_SUFFIX: Final = re.compile(r"[\w.\-]*")
_MAX_SUFFIX: Final = 16


@dataclass(frozen=True, slots=True)
class Pairs:
    """The tags of one prefix and suffix."""

    opener: str
    end: str
    sep: str
    key: str
    key_end: str
    value: str
    value_end: str
    closers: Literals
    after_name: Literals
    after_value: Literals


@lru_cache(maxsize=64)
def pairs_of(prefix: str, suffix: str) -> Pairs:
    """Return the tags with this before and after each name."""
    opener, end = f"<{prefix}tool_call{suffix}>", f"</{prefix}tool_call{suffix}>"
    key, key_end = f"<{prefix}arg_key{suffix}>", f"</{prefix}arg_key{suffix}>"
    value, value_end = f"<{prefix}arg_value{suffix}>", f"</{prefix}arg_value{suffix}>"
    sep = f"<{prefix}tool_sep{suffix}>"
    return Pairs(
        *(opener, end, sep, key, key_end, value, value_end),
        closers=Literals([value_end, end, opener]),
        after_name=Literals([key, end, key_end, value_end, opener, sep]),
        after_value=Literals([key, end, value_end, opener]),
    )


def read_pairs(block: Block, dialect: str, prefix: str = "", suffix: str = "") -> Wait[bool]:
    """Read one call; the source stands behind its opener."""
    return (yield from _Call(block, dialect, pairs_of(prefix, suffix)).read())


def read_suffixed(block: Block, opener: str) -> Wait[bool]:
    """Read `<tool_calls:SUFFIX>` or `<tool_call:SUFFIX>`: the suffix belongs to every tag."""
    src = block.src
    suffix = yield from run_of(src, _SUFFIX, _MAX_SUFFIX)
    closed = yield from take(src, ">")
    if not suffix or len(suffix) > _MAX_SUFFIX or not closed:
        return False
    pairs = pairs_of("", ":" + suffix)
    if opener == "<tool_calls:":
        yield from skip_space(src)
        inner = yield from take(src, pairs.opener)
        if not inner:
            return False
    good = yield from _Call(block, "hunyuan-hy3", pairs).read()
    while good:
        start = src.pos
        yield from skip_space(src)
        again = yield from take(src, pairs.opener)
        if not again:
            closed = yield from take(src, f"</tool_calls:{suffix}>")
            if not closed:
                src.seek(start)
            return True
        yield Resume()
        good = yield from _Call(block, "hunyuan-hy3", pairs).read()
    return good


class _Call:
    def __init__(self, block: Block, dialect: str, pairs: Pairs) -> None:
        self.block = block
        self.src = block.src
        self.pairs = pairs
        self.dialect = dialect
        self.writer = CallWriter(block, NOWHERE, dialect)
        self.count = 0
        self.inside = 0  # calls that are open inside of the value that is being read

    def read(self) -> Wait[bool]:
        src = self.src
        start = src.pos
        name = yield from until(src, _STOP, MAX_NAME)
        if name is None or not _WORD.fullmatch(name):
            return False
        char = yield from peek(src)
        if char == "(":
            src.seek(start)
            return (yield from python.read_call(self.block, "pythonic"))
        if char in {"{", "["}:
            return False
        if char == "\n" and self.dialect == "glm-4.7":
            self.dialect = "glm-4.5"
        key = yield from self._behind_name(name)
        if key is None:
            return False
        return (yield from self._call(name, key))

    def _call(self, name: str, key: str) -> Wait[bool]:
        """Read the call behind its name; `key` has been read already, or is empty."""
        declared = name
        if key and name.endswith(key):
            declared = self.block.tools.longest(name) or name
            key = name[len(declared) :].strip() or key
        tool = yield from self.block.resolve(declared)
        self.writer = CallWriter(self.block, tool, self.dialect)
        self.writer.repaired = bool(key)
        good = yield from self._pairs(key)
        if not good:
            return (yield from self.writer.broken())
        yield from self.writer.end()
        return True

    def _behind_name(self, name: str) -> Wait[str | None]:
        """Return the key behind the name if its opening tag is missing.

        Nothing if all is well, None if this is no call.
        """
        src, pairs = self.src, self.pairs
        yield from skip_space(src)
        for stray in (pairs.sep, pairs.value_end):
            found = yield from take(src, stray)
            if found:
                yield from skip_space(src)
        literal = yield from one_of(src, pairs.after_name)
        if literal in {pairs.key, pairs.end}:
            return ""
        if literal == pairs.key_end:
            src.pos += len(literal)
            return name
        if literal == pairs.opener:
            src.pos += len(literal)
        return (yield from self._bare_key())

    def _bare_key(self) -> Wait[str | None]:
        """Return a key without its opening tag, and go past the tag that closes it."""
        key = yield from until(self.src, _KEY_STOP, MAX_NAME)
        closed = yield from take(self.src, self.pairs.key_end)
        return key.strip() if closed and key and key.strip() else None

    def _pairs(self, key: str) -> Wait[bool]:
        src, pairs = self.src, self.pairs
        while True:
            if not key:
                over = yield from self._ends()
                if over is not None:
                    return over
                yield from take(src, pairs.key)
                key = (yield from self._bare_key()) or ""
                if not key:
                    return False
            good = yield from self._value(key)
            if not good:
                return False
            self.count += 1
            key = ""

    def _ends(self) -> Wait[bool | None]:
        """Return whether the call ends well here; None if it goes on."""
        src, pairs = self.src, self.pairs
        yield from skip_space(src)
        while (yield from take(src, pairs.value_end)):
            yield from skip_space(src)
        ended = yield from take(src, pairs.end)
        if ended:
            return True
        if src.at_end():
            self.writer.repaired = True
            return self.count > 0 and not src.cut
        literal = yield from one_of(src, pairs.after_value)
        if literal == pairs.opener and self.count:
            self.writer.repaired = True
            return True
        return None

    def _value(self, key: str) -> Wait[bool]:
        src, pairs = self.src, self.pairs
        start = src.pos
        yield from skip_space(src)
        opened = yield from take(src, pairs.value)
        if not opened:
            src.seek(start)
            self.writer.repaired = True
        self.inside = 0
        value = RawValue(self.block, pairs.closers, self._judge, framing="pair")
        return (yield from value.read(self.writer, key))

    def _judge(self, literal: str) -> Wait[Ending | None]:
        """Judge a candidate end, as `rawvalue.Judge` does.

        A call that is complete inside the value belongs to the value.
        """
        src, pairs = self.src, self.pairs
        if literal == pairs.opener:
            src.pos += len(literal)
            yield from until(src, _KEY_STOP, MAX_NAME)
            self.inside += bool((yield from take(src, pairs.key)))
            return None
        if literal == pairs.end and self.inside:
            self.inside -= 1
            return None
        ending = yield from self._ending(literal)
        if ending is None or not self.inside:
            return ending
        return Ending(ending.resume, sure=False)

    def _ending(self, literal: str) -> Wait[Ending | None]:
        src, pairs = self.src, self.pairs
        start = src.pos
        for _ in range(4):
            closer = yield from take(src, pairs.value_end)
            if not closer:
                break
            yield from skip_space(src)
        resume = src.pos
        if literal == pairs.end:
            src.pos += len(literal)
            yield from skip_space(src)
            follows = yield from one_of(src, pairs.after_value)
            good = follows == pairs.opener or (src.at_end() and not src.cut)
            return Ending(start) if good else None
        follows = yield from one_of(src, pairs.after_value)
        if follows or (src.at_end() and not src.cut):
            return Ending(resume)
        key = yield from self._bare_key()
        types = self.writer.tool.types
        return Ending(resume) if key and (key in types or not types) else None


DIALECTS: Final = (
    Dialect(
        id="glm-4.5",
        models="GLM 4.5, 4.6",
        ends=("<|role_end|>",),
        marks=(("<tool_call>", "<arg_key>", "/nothink"),),
        precedence=1,
    ),
    Dialect(
        id="glm-4.7",
        models="GLM 4.7 and later, Spark 2.5, Laguna, Ling 3.0",
        closers=("</tool_call>", "</arg_value>"),
        tokens=("<arg_key>", "</arg_key>", "<arg_value>"),
        marks=(("<tool_call>", "<arg_key>"),),
        precedence=1,
    ),
    Dialect(
        id="hunyuan-hy3",
        models="Hunyuan Hy3, Hy4",
        openers={"<tool_calls:": read_suffixed, "<tool_call:": read_suffixed},
        marks=(("<arg_key", "<tool_sep"),),
        precedence=1,
    ),
    Dialect(id="pythonic", models="Python in `<tool_call>`"),
)
