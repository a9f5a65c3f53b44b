"""MiniMax M3: every tag behind `]<]minimax[>[`, a parameter's name as its tag, values as nested tags."""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.jsontext import MAX_DEPTH, Json
from supervisor.core.toolcalls.schema import ANY_JSON, typed
from supervisor.core.toolcalls.source import Literals, Resume, Wait, one_of, skip_space, take, until
from supervisor.core.toolcalls.tools import MAX_NAME, Tool

_MARK: Final = "]<]minimax[>["
_OPENER: Final = f"{_MARK}<tool_call>"
_INVOKE: Final = f'{_MARK}<invoke name="'
_INVOKE_END: Final = f"{_MARK}</invoke>"
_FIND: Final = re.compile(re.escape(_MARK))
_STOP: Final = re.compile(r"[<>\n]")
_ENDS: Final = Literals([f"{_MARK}</tool_call>", _INVOKE])


def read_block(block: Block, opener: str) -> Wait[bool]:
    """The calls of a block."""
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
    """One call, behind the quote that begins its name."""
    src = block.src
    name = yield from until(src, _STOP, MAX_NAME)
    closed = yield from take(src, ">")
    if not name or not closed:
        return False
    tool = yield from block.resolve(name.rstrip().removesuffix('"'))
    writer = CallWriter(block, tool, "minimax-m3")
    tree = _Tree(block, tool)
    while True:
        yield from skip_space(src)
        ended = yield from take(src, _INVOKE_END)
        if ended:
            break
        implied = yield from one_of(src, _ENDS)
        if implied or src.at_end():
            writer.repaired = True
            if (src.cut and src.at_end()) or not tree.count:
                return False
            break
        key = yield from tree.opening()
        if not key:
            return False
        value = yield from tree.value(key, key)
        if value is None:
            return False
        yield from writer.value(key, value[0])
    yield from writer.end()
    return True


class _Tree:
    """Reads nested tags."""

    def __init__(self, block: Block, tool: Tool) -> None:
        self.src = block.src
        self.tool = tool
        self.count = 0
        self._depth = 0

    def opening(self) -> Wait[str]:
        """The name of the tag that begins here; empty if none does. Goes past it."""
        src = self.src
        start = src.pos
        begins = yield from take(src, f"{_MARK}<")
        name = (yield from until(src, _STOP, MAX_NAME)) if begins else None
        closed = yield from take(src, ">")
        if not name or not closed or name.startswith("/"):
            src.seek(start)
            return ""
        self.count += 1
        return name

    def value(self, tag: str, key: str = "") -> Wait[tuple[Json] | None]:
        """What stands in a tag, past its end: text that the schema types (of parameter `key`), or what is nested."""
        src = self.src
        closer = f"{_MARK}</{tag}>"
        start = src.pos
        nested: list[tuple[str, Json]] = []
        self._depth += 1
        while self._depth <= MAX_DEPTH:
            found = src.find(_FIND)
            if found < 0 and not src.closed:
                src.pos = max(src.pos, src.end - len(_MARK) + 1)
                yield None
                continue
            if found < 0:
                return self._implied(start, key, nested)
            src.pos = found
            ended = yield from take(src, closer)
            if ended:
                self._depth -= 1
                return (self._settled(src.slice(start, found), key, nested),)
            inner = yield from self.opening()
            if not inner:
                return None
            item = yield from self.value(inner)
            if item is None:
                return None
            nested.append((inner, item[0]))
        return None

    def _implied(self, start: int, key: str, nested: list[tuple[str, Json]]) -> tuple[Json] | None:
        """The text ends inside the value."""
        src = self.src
        if src.cut or nested:
            return None
        text = src.slice(start, src.end)
        for length in range(min(len(_MARK) - 1, len(text)), 0, -1):
            if text.endswith(_MARK[:length]):
                text = text[:-length]
                break
        src.pos = src.end
        return (self._settled(text, key, nested),)

    def _settled(self, text: str, key: str, nested: list[tuple[str, Json]]) -> Json:
        if not nested:
            return self.tool.from_text(key, text) if key else typed(text, ANY_JSON)
        if all(name == "item" for name, _ in nested):
            return [value for _, value in nested]
        return dict(nested)


READERS: Final = {_OPENER: read_block, _INVOKE: read_invoke}
