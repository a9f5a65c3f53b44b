"""Gemma 3's `tool_code` fence: code, unless it holds nothing but calls.

A call may be assigned (`x = f()`), printed (`print(f())`), or written as a shell does (`f --city Paris`). Comments, and
names of what was assigned, say nothing. A bare word is a string where the schema says string.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects import python
from supervisor.core.toolcalls.dialects.fences import FENCE, close_fence
from supervisor.core.toolcalls.jsontext import Json
from supervisor.core.toolcalls.source import CompleteCall, Unknown, Wait, one_of, peek, run_of, skip_space, take
from supervisor.core.toolcalls.tools import MAX_NAME, Tool

_ID: Final = "gemma-3"
_LINE: Final = re.compile(r"[^\n]*")
_BLANKS: Final = re.compile(r"[ \t]*")
_INFO: Final = re.compile(r"\w*")
_MAX_LINE: Final = 64 * 1024
_QUOTED: Final = re.compile(r""""(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'[^']*+(?:'|\Z)""")
"""A string, or the rest of the line where it does not end: each character is looked at once."""

_NO_CALL: Final = re.compile(r"[|&;<>$`(){}\[\]*#\"'\\]")
_NAMED: Final = re.compile(r"--([A-Za-z_][\w-]*)(?:=(.*))?|([A-Za-z_]\w*)=(.*)", re.DOTALL)


def read_tool_code(block: Block, opener: str) -> Wait[bool]:
    """Read the calls of a fence, behind its opening line or on it."""
    info = yield from run_of(block.src, _INFO, MAX_NAME)
    if info:
        return False
    fence = _Fence(block)
    reader = fence.read()
    while True:
        try:
            signal = next(reader)
        except StopIteration as stop:
            good = bool(stop.value)
            break
        if signal is None:
            yield None
        elif isinstance(signal, Unknown):
            return False
        elif isinstance(signal, CompleteCall):
            fence.calls.append(signal)
    closed = yield from close_fence(block)
    if not good or not fence.calls or (block.src.cut and not closed):
        return False
    yield from fence.calls
    return True


class _Fence:
    """The statements up to the closing fence.

    Attributes:
        calls: what was found.
        names: what was assigned.
    """

    def __init__(self, block: Block) -> None:
        self.src = block.src
        self.block = replace(block, may_stream=False, whole=True)
        self.calls: list[CompleteCall] = []
        self.names: set[str] = set()

    def read(self) -> Wait[bool]:
        src = self.src
        while True:
            yield from skip_space(src)
            over = yield from one_of(src, FENCE)
            if over or src.at_end():
                return True
            char = yield from peek(src)
            if char in {";", ","}:
                src.pos += 1
            elif char == "#":
                yield from run_of(src, _LINE, _MAX_LINE)
            else:
                good = yield from self._statement()
                if not good:
                    return False

    def _statement(self) -> Wait[bool]:
        src = self.src
        printed = yield from take(src, "print(")
        if printed:
            yield from skip_space(src)
        else:
            yield from self._target()
        start = src.pos
        name = yield from run_of(src, python.NAME, MAX_NAME)
        yield from run_of(src, _BLANKS, MAX_NAME)
        char = yield from peek(src)
        if char == "(":
            src.seek(start)
            good = yield from python.read_call(self.block, _ID, variables=self.names)
        elif name in self.names:
            good = True
        else:
            good = not printed and (yield from self._command(name))
        if not printed or not good:
            return good
        yield from skip_space(src)
        return (yield from take(src, ")"))

    def _target(self) -> Wait[None]:
        """Go past `NAME =`."""
        src = self.src
        start = src.pos
        name = yield from run_of(src, python.NAME, MAX_NAME)
        yield from run_of(src, _BLANKS, MAX_NAME)
        equals = yield from take(src, "=")
        if name and equals:
            self.names.add(name)
            yield from run_of(src, _BLANKS, MAX_NAME)
        else:
            src.seek(start)

    def _command(self, name: str) -> Wait[bool]:
        """Read a call in the form of a shell command: the rest of the line."""
        src = self.src
        start = src.pos
        line = yield from run_of(src, _LINE, _MAX_LINE)
        line, fence, _ = line.partition("```")
        if fence:
            src.seek(start + len(line))
        if not name or not line.strip() or len(line) > _MAX_LINE:
            return False
        tool = yield from self.block.resolve(name)
        arguments = arguments_of(line, tool)
        if arguments is None:
            return False
        writer = CallWriter(self.block, tool, _ID)
        writer.repaired = True
        for key, value in arguments.items():
            yield from writer.value(key, value)
        yield from writer.end()
        return True


def arguments_of(line: str, tool: Tool) -> dict[str, Json] | None:
    """Return the arguments of a command line; None if it is anything else.

    It may hold `--key value`, `--key=value`, `key=value`, flags, and one string without a key.
    """
    if _NO_CALL.search(_QUOTED.sub("", line)):
        return None
    try:
        words = shlex.split(line)
    except ValueError:  # a string does not end
        return None
    found: dict[str, Json] = {}
    first = (tool.order or ("",))[0]
    if tool.says_string(first) and not _NAMED.fullmatch(words[0]):
        found[first] = words.pop(0)
    while words:
        named = _NAMED.fullmatch(words.pop(0))
        key = _key(named[1] or named[3], tool) if named else ""
        if named is None or key not in tool.types or key in found:
            return None
        text = named[2] if named[1] else named[4]
        if text is None and words and not words[0].startswith("--"):
            text = words.pop(0)
        if text is None and "boolean" not in tool.types[key]:
            return None
        found[key] = True if text is None else tool.from_text(key, text)
    return found


def _key(written: str, tool: Tool) -> str:
    return written if written in tool.types else written.replace("-", "_")


DIALECTS: Final = (
    Dialect(id=_ID, models="Gemma 3", line_openers={"```tool_code": read_tool_code}, ends=("<end_of_turn>",)),
)
