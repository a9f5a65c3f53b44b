"""Calls as tags around parameters: `<function=NAME><parameter=KEY>…` and `<invoke name="NAME"><parameter name="KEY">…`.

Also `<function name="NAME"><param name="KEY">…`, and all of them with a prefix on every tag. Values are plain text, the
tool's schema types them. A closing tag that is missing is implied by what comes instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from supervisor.core.toolcalls.block import NOWHERE, Block, CallWriter
from supervisor.core.toolcalls.objects import read_bare_arguments
from supervisor.core.toolcalls.rawvalue import Framing, RawValue
from supervisor.core.toolcalls.schema import ANY_JSON, STRING, Types
from supervisor.core.toolcalls.source import Literals, Resume, Wait, one_of, peek, skip_space, take, take_one, until
from supervisor.core.toolcalls.tools import MAX_NAME

_WRAPPERS: Final = ("tool_call", "tool_calls", "function_calls", "seed:tool_call", "minimax:tool_call")
_OPENERS: Final = (
    "<tool_call>",
    "<seed:tool_call>",
    "<minimax:tool_call>",
    "<function=",
    "<function name=",
    "<invoke ",
)
_BARE: Final = {"<function=": "qwen3-coder", "<function name=": "minicpm5", "<invoke name=": "anthropic"}
_STOP: Final = re.compile(r"[<>\n]")
_NAME: Final = re.compile(r"""\s*=?\s*(?:name\s*=)?\s*["']?([^"'<>=\n]+?)["']?\s*""")
_KEY: Final = re.compile(r"""\s*=\s*["']?([^\s<>"']+)["']?\s*|\s+name\s*=\s*["']([^\s<>"']+)["'](.*)""")
_TYPED: Final = re.compile(r"""\s(?:string|type)\s*=\s*["'](\w+)["']""")
_HINTS: Final[Mapping[str, Types]] = {"true": STRING, "string": STRING, "false": ANY_JSON}


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of one prefix.

    Attributes:
        parameter: how a parameter begins.
        calls: how a call begins, without the rest of its tag.
        openers: how another call begins.
        closers: all that may end a value.
    """

    prefix: str
    parameter: str
    parameter_closers: Literals
    call_closers: Literals
    outer_closers: Literals
    calls: Literals
    openers: Literals
    closers: Literals


@lru_cache(maxsize=64)
def tags_of(prefix: str) -> Tags:
    """The tags with this prefix before each name."""
    parameter = [f"</{prefix}parameter>", f"</{prefix}param>"]
    call = [f"</{prefix}function>", f"</{prefix}invoke>"]
    outer = [f"</{name}>" for name in _WRAPPERS] + [f"</{prefix}function_calls>", f"</{prefix}tool_calls>"]
    outer += ["<｜tool▁call▁end｜>", "<｜tool_call_end｜>"]
    begin = f"<{prefix}param"
    return Tags(
        prefix=prefix,
        parameter=begin,
        parameter_closers=Literals(parameter),
        call_closers=Literals(call),
        outer_closers=Literals(outer),
        calls=Literals([f"<{prefix}function", f"<{prefix}invoke"]),
        openers=Literals([*_OPENERS, f"<{prefix}invoke "]),
        closers=Literals([*parameter, *call, *outer, begin]),
    )


def read_functions(block: Block, dialect: str, prefix: str = "", framing: Framing = "each") -> Wait[bool]:
    """Calls one after another; the source stands at the first one's tag, or white space before it."""
    src, tags = block.src, tags_of(prefix)
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
    """A call without anything around it."""
    block.src.seek(block.src.pos - len(opener))
    return (yield from read_functions(block, _BARE[opener]))


class _Function:
    def __init__(self, block: Block, dialect: str, tags: Tags, framing: Framing) -> None:
        self.block = block
        self.src = block.src
        self.tags = tags
        self.framing = framing
        self.dialect = dialect
        self.writer = CallWriter(block, NOWHERE, dialect)
        self.seen: set[str] = set()
        self.count = 0
        self.cdata = dialect == "minicpm5"

    def read(self) -> Wait[bool]:
        header = yield from until(self.src, _STOP, MAX_NAME)
        named = _NAME.fullmatch(header or "")
        closed = yield from take(self.src, ">")
        if named is None or not closed:
            return False
        tool = yield from self.block.resolve(named[1])
        yield from skip_space(self.src)
        char = yield from peek(self.src)
        dialect = "functionary-v3.1" if char == "{" and self.dialect == "qwen3-coder" else self.dialect
        self.writer = CallWriter(self.block, tool, dialect)
        if char == "{":
            return (yield from read_bare_arguments(self.block, self.writer))
        good = yield from self._parameters()
        if not good:
            return (yield from self.writer.broken())
        yield from self.writer.end()
        return True

    def _parameters(self) -> Wait[bool]:
        """Everything up to the end of the call. False: this is no call, or was cut."""
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
        """The call's own closing tag is missing: does it end here all the same?"""
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
        """One parameter; the source stands behind `<param`."""
        self.count += 1
        key, hint = yield from self._header()
        before = self.writer.item(key)
        self.writer.repaired |= not key or key in self.seen
        self.seen.add(key)
        value = RawValue(self.block, self.tags.closers, self._judge, framing=self.framing, cdata=self.cdata)
        good = yield from value.read(self.writer if key else None, key, hint)
        if before and not value.ended:
            self.writer.put_back(key, before)  # the second one is but a beginning
        return good

    def _header(self) -> Wait[tuple[str, Types | None]]:
        """The parameter's name, empty if it is malformed, and what the tag says of its type."""
        yield from take(self.src, "eter")
        start = self.src.pos
        text = yield from until(self.src, _STOP, MAX_NAME)
        closed = yield from take(self.src, ">")
        found = _KEY.fullmatch(text or "")
        if found is None or not closed:
            if not closed:
                self.src.seek(start)
            return "", None
        said = _TYPED.search(found[3] or "")
        return found[1] or found[2], _HINTS.get(said[1]) if said else None

    def _judge(self, literal: str) -> Wait[int]:
        """See `rawvalue.Judge`."""
        src, tags = self.src, self.tags
        start = src.pos
        if literal == tags.parameter:
            begins = yield from self._begins_parameter(start)
            self.writer.repaired |= begins
            return start if begins else -1
        if literal in tags.parameter_closers.texts:
            return (yield from self._judge_parameter())
        src.pos += len(literal)
        yield from skip_space(src)
        follows = yield from self._follows(tags.outer_closers if literal in tags.call_closers.texts else None)
        if follows:
            self.writer.repaired = True
        return start if follows else -1

    def _judge_parameter(self) -> Wait[int]:
        src, tags = self.src, self.tags
        for _ in range(4):
            closer = yield from take_one(src, tags.parameter_closers)
            if not closer:
                break
            yield from skip_space(src)
        resume = src.pos
        closer = yield from one_of(src, tags.call_closers)
        follows = bool(closer) or (yield from self._follows(tags.outer_closers))
        if not follows:
            follows = yield from take(src, tags.parameter)
        return resume if follows else -1

    def _follows(self, closers: Literals | None) -> Wait[bool]:
        """Whether a new call, the end of the text, or one of the closers stands here."""
        if self.src.at_end():
            return not self.src.cut
        if closers is not None:
            closer = yield from one_of(self.src, closers)
            if closer:
                return True
        opener = yield from one_of(self.src, self.tags.openers)
        return bool(opener) or (self.src.at_end() and not self.src.cut)

    def _begins_parameter(self, start: int) -> Wait[bool]:
        """Whether a parameter that is known and has no value yet begins here, at the start of a line."""
        src = self.src
        if src.slice(start - 1, start) != "\n":
            return False
        src.pos += len(self.tags.parameter)
        key, _ = yield from self._header()
        known = self.writer.tool is NOWHERE or key in self.writer.tool.types
        return bool(key) and key not in self.seen and known


READERS: Final = dict.fromkeys(_BARE, read_bare)
