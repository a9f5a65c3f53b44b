"""Formats that begin a line.

Functionary's `>>>`, Command-R+'s `Action:`, Gemma 3's fence, Qwen-Agent's flowers, Llama's `<|python_tag|>`.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialects import python
from supervisor.core.toolcalls.objects import read_bare_arguments, read_calls
from supervisor.core.toolcalls.source import (
    Found,
    Literals,
    Resume,
    Unknown,
    Wait,
    one_of,
    peek,
    run_of,
    skip_space,
    take,
)  # fmt: skip
from supervisor.core.toolcalls.tools import MAX_NAME

_NAME: Final = re.compile(r"[\w.:\-]*")
_LINE: Final = re.compile(r"[^\n]*")
_INFO: Final = re.compile(r"[\w\-]*")
_FENCE: Final = Literals(["```"])


def read_functionary(block: Block, opener: str) -> Wait[bool]:
    """`>>>NAME`, on the next line JSON."""
    return (yield from read_name_line(block))


def read_name_line(block: Block) -> Wait[bool]:
    """`NAME`, on the next line JSON."""
    src = block.src
    name = yield from run_of(src, _NAME, MAX_NAME)
    line = yield from take(src, "\n")
    if not name or not line:
        return False
    yield from skip_space(src)
    char = yield from peek(src)
    if char != "{":
        return False
    tool = yield from block.resolve(name)
    return (yield from read_bare_arguments(block, CallWriter(block, tool, "functionary-v3.2")))


def read_action(block: Block, opener: str) -> Wait[bool]:
    """`Action:`, then a fence with JSON."""
    src = block.src
    yield from skip_space(src)
    fenced = yield from take(src, "```")
    if not fenced:
        return False
    yield from run_of(src, _INFO, 16)
    good = yield from read_calls(block, "command-r-plus")
    if good:
        yield from close_fence(block)
    return good


def close_fence(block: Block) -> Wait[bool]:
    """Go past the fence that closes here, if there is one."""
    src = block.src
    start = src.pos
    yield from skip_space(src)
    closed = yield from take(src, "```")
    if not closed:
        src.seek(start)
    return closed


def read_tool_code(block: Block, opener: str) -> Wait[bool]:
    """A `tool_code` fence: nothing but calls in it, else it is code."""
    src = block.src
    rest = yield from run_of(src, _LINE, MAX_NAME)
    if rest.strip():
        return False
    inner = Block(src, block.tools, block.options, whole=True)
    calls: list[Found] = []
    reader = python.read_lines(inner, "gemma-3", _fence_closes)
    while True:
        try:
            signal = next(reader)
        except StopIteration as stop:
            good = stop.value
            break
        if signal is None:
            yield None
        elif isinstance(signal, Unknown):
            return False
        elif isinstance(signal, Found):
            calls.append(signal)
    closed = yield from close_fence(block)
    if not good or not calls or (src.cut and not closed):
        return False
    yield from calls
    return True


def _fence_closes(block: Block) -> Wait[bool]:
    fence = yield from one_of(block.src, _FENCE)
    return bool(fence)


def read_flowers(block: Block, opener: str) -> Wait[bool]:
    """`✿FUNCTION✿: NAME`, on the next line `✿ARGS✿:` and JSON."""
    src = block.src
    yield from take(src, ":")
    yield from skip_space(src)
    name = yield from run_of(src, _NAME, MAX_NAME)
    yield from skip_space(src)
    begins = yield from take(src, "✿ARGS✿")
    if not name or not begins:
        return False
    yield from take(src, ":")
    tool = yield from block.resolve(name)
    return (yield from read_bare_arguments(block, CallWriter(block, tool, "qwen-agent")))


def read_python_tag(block: Block, opener: str) -> Wait[bool]:
    """`<|python_tag|>`: JSON objects, or `NAME.call(…)`."""
    src = block.src
    yield from skip_space(src)
    char = yield from peek(src)
    if char in {"{", "["}:
        return (yield from read_calls(block, "llama-3-json"))
    any_call = False
    while True:
        good = yield from python.read_call(block, "llama-3-builtin", method=".call")
        if not good:
            return any_call
        yield Resume()
        any_call = True
        start = src.pos
        yield from skip_space(src)
        more = yield from take(src, ";")
        if not more:
            src.seek(start)
            return True
        yield from skip_space(src)


READERS: Final = {"✿FUNCTION✿": read_flowers}
LINE_READERS: Final = {
    ">>>": read_functionary,
    "Action:": read_action,
    "```tool_code": read_tool_code,
    "<|python_tag|>": read_python_tag,
}
