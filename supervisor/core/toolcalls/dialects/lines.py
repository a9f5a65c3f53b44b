"""Formats whose calls begin a line.

Functionary's `>>>`, Command-R+'s `Action:`, Qwen-Agent's flowers, Llama's `<|python_tag|>`.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects import python
from supervisor.core.toolcalls.dialects.fences import close_fence
from supervisor.core.toolcalls.objects import read_bare_arguments, read_calls
from supervisor.core.toolcalls.source import Resume, Wait, peek, run_of, skip_space, take
from supervisor.core.toolcalls.tools import MAX_NAME

_NAME: Final = re.compile(r"[\w.:\-]*")
_INFO: Final = re.compile(r"[\w\-]*")


def read_functionary(block: Block, opener: str) -> Wait[bool]:
    """Read `>>>NAME` with JSON on the next line."""
    return (yield from read_name_line(block))


def read_name_line(block: Block) -> Wait[bool]:
    """Read `NAME` with JSON on the next line."""
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
    """Read `Action:` and a fence with JSON."""
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


def read_flowers(block: Block, opener: str) -> Wait[bool]:
    """Read `✿FUNCTION✿: NAME` with `✿ARGS✿:` and JSON on the next line."""
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
    """Read what follows `<|python_tag|>`: JSON objects, or `NAME.call(…)`."""
    src = block.src
    yield from skip_space(src)
    char = yield from peek(src)
    if char in {"{", "["}:
        return (yield from read_calls(block, "llama-3-json"))
    last = -1
    while True:
        good = yield from python.read_call(block, "llama-3-builtin", method=".call")
        if good:
            yield Resume()
            last = src.pos
            yield from skip_space(src)
            more = yield from take(src, ";")
            yield from skip_space(src)
            last = src.pos if src.at_end() else last
        if not good or not more:
            if last >= 0:
                src.seek(last)
            return last >= 0


DIALECTS: Final = (
    Dialect(
        id="functionary-v3.2",
        models="Functionary v3.2",
        line_openers={">>>": read_functionary},
        after_name={"\n{": read_name_line},
        marks=((">>>",),),
    ),
    Dialect(
        id="command-r-plus",
        models="Command R+",
        line_openers={"Action:": read_action},
        marks=(("Action:", "```json"),),
        precedence=1,
    ),
    Dialect(
        id="qwen-agent",
        models="Qwen-Agent's prompt",
        openers={"✿FUNCTION✿": read_flowers},
        closers=("✿RESULT✿",),
    ),
    Dialect(
        id="llama-3-json",
        models="Llama 3.x, JSON",
        line_openers={"<|python_tag|>": read_python_tag},
        ends=("<|eom_id|>", "<|eot_id|>"),
        marks=(('{"name": function name, "parameters":',),),
        precedence=2,
    ),
    Dialect(id="llama-3-builtin", models="Llama 3.1, built-in tools"),
)
