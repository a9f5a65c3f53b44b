"""MiniMax M3: `]<]minimax[>[` before every tag, a parameter's name as its tag, values as nested tags."""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.jsontext import MAX_DEPTH, Json
from supervisor.core.toolcalls.rawvalue import Ending, RawValue
from supervisor.core.toolcalls.schema import ANY_JSON, typed
from supervisor.core.toolcalls.source import Literals, Resume, Wait, literals_of, one_of, peek, skip_space, take, until
from supervisor.core.toolcalls.tools import MAX_NAME, Tool

_ID: Final = "minimax-m3"
_MARK: Final = "]<]minimax[>["
_OPENER: Final = f"{_MARK}<tool_call>"
_INVOKE: Final = f'{_MARK}<invoke name="'
_INVOKE_END: Final = f"{_MARK}</invoke>"
_BRACKET: Final = re.compile(r"\]")
_FIND: Final = re.compile(re.escape(_MARK))
_STOP: Final = re.compile(r"[<>\n]")
_CLOSER: Final = f"{_MARK}</tool_call>"
_ENDS: Final = Literals([_CLOSER, _INVOKE])


def read_block(block: Block, opener: str) -> Wait[bool]:
    """Read the calls of a block."""
    src = block.src
    any_call = False
    while True:
        last = src.pos
        yield from skip_space(src)
        begins = yield from take(src, _INVOKE)
        if not begins:
            src.seek(last)
            return any_call
        good = yield from read_invoke(block, _INVOKE)
        if not good:
            return False
        yield Resume()
        any_call = True


def read_invoke(block: Block, opener: str) -> Wait[bool]:
    """Read one call, behind the quote that begins its name."""
    src = block.src
    name = yield from until(src, _STOP, MAX_NAME)
    closed = yield from take(src, ">")
    if not name or not closed:
        return False
    tool = yield from block.resolve(name.rstrip().removesuffix('"'))
    writer = CallWriter(block, tool, _ID)
    tree = _Tree(block, tool)
    count = 0
    while True:
        yield from skip_space(src)
        ended = yield from take(src, _INVOKE_END)
        if ended:
            break
        implied = yield from one_of(src, _ENDS)
        if implied or src.at_end():
            writer.repaired = True
            if (src.cut and src.at_end()) or not count:
                return False
            break
        key = yield from tree.opening()
        if not key:
            return False
        value = yield from tree.value(key, key)
        if value is None:
            return False
        count += 1
        yield from writer.value(key, value[0])
    yield from writer.end()
    return True


class _Tree:
    """The reader of nested tags."""

    def __init__(self, block: Block, tool: Tool) -> None:
        self.block = block
        self.src = block.src
        self.tool = tool
        self._behind_call = literals_of(block.registry.ends, _CLOSER, _INVOKE)
        self._open: list[str] = []  # tags that hold nested ones

    def opening(self) -> Wait[str]:
        """Go past the tag that begins here and return its name; empty, wherever it has got to, if none begins."""
        src = self.src
        begins = yield from take(src, f"{_MARK}<")
        name = (yield from until(src, _STOP, MAX_NAME)) if begins else None
        closed = yield from take(src, ">")
        return name if name and closed and not name.startswith("/") else ""

    def value(self, tag: str, key: str = "") -> Wait[tuple[Json] | None]:
        """Return what a tag holds, past its end: text with the type of parameter `key`, or nested tags."""
        src = self.src
        start = src.pos
        yield from skip_space(src)
        begins = yield from take(src, f"{_MARK}<")
        slash = (yield from peek(src)) == "/"
        src.seek(start)
        if not begins or slash:
            return (yield from self._leaf(tag, key))
        self._open.append(tag)
        nested: list[tuple[str, Json]] = []
        while len(self._open) <= MAX_DEPTH:
            found = src.find(_FIND)
            if found < 0 and not src.closed:
                src.pos = max(src.pos, src.end - len(_MARK) + 1)
                yield None
                continue
            if found < 0:
                return None
            src.pos = found
            ended = yield from take(src, f"{_MARK}</{tag}>")
            if ended:
                self._open.pop()
                return (_collected(nested),)
            inner = yield from self.opening()
            item = (yield from self.value(inner)) if inner else None
            if item is None:
                return None
            nested.append((inner, item[0]))
        return None

    def _leaf(self, tag: str, key: str) -> Wait[tuple[Json] | None]:
        closer = f"{_MARK}</{tag}>"
        raw = RawValue(self.block, Literals([closer]), self._judge, mark=_BRACKET)
        good = yield from raw.scan(None)
        text = raw.text(raw.start, raw.stop)
        if not good or (not raw.ended and (_MARK in text or self._open)):
            return None
        return (self.tool.from_text(key, text) if key else typed(text, ANY_JSON),)

    def _judge(self, literal: str) -> Wait[Ending | None]:
        """Judge a candidate end, as `rawvalue.Judge` does: a tag follows a value, a call or the block's end a call."""
        src = self.src
        src.pos += len(literal)
        resume = src.pos
        yield from skip_space(src)
        if src.at_end():
            return Ending(resume, sure=not src.cut)
        ended = yield from take(src, f"{_MARK}</{self._open[-1]}>" if self._open else _INVOKE_END)
        if not ended or self._open:
            another = ended or (yield from self.opening())
            return Ending(resume) if another else None
        yield from skip_space(src)
        follows = yield from one_of(src, self._behind_call)
        return Ending(resume, sure=bool(follows) or (src.at_end() and not src.cut))


def _collected(nested: list[tuple[str, Json]]) -> Json:
    """Return the value of nested tags: an array if all are items, else an object."""
    if all(name == "item" for name, _ in nested):
        return [value for _, value in nested]
    return dict(nested)


DIALECTS: Final = (
    Dialect(
        id=_ID,
        models="MiniMax M3",
        openers={_OPENER: read_block, _INVOKE: read_invoke},
        closers=(_INVOKE_END, _CLOSER),
        think={"<mm:think>": "</mm:think>"},
        tokens=(_MARK,),
        marks=((_MARK,),),
    ),
)
