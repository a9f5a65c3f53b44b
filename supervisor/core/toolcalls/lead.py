"""Calls without a marker of their own.

They count only if they are the whole message, which the caller makes sure of.
"""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.dialects.fences import FENCE, close_fence
from supervisor.core.toolcalls.dialects.marked import read_json_or_python
from supervisor.core.toolcalls.objects import BARE, read_calls
from supervisor.core.toolcalls.source import Wait, one_of, peek, run_of, skip_space, take, take_one
from supervisor.core.toolcalls.tools import MAX_NAME

_INFO: Final = re.compile(r"[\w\-]*")


def read_whole(block: Block) -> Wait[bool]:
    """Read whichever of these forms begins at the source's position."""
    char = yield from peek(block.src)
    if char == "`":
        return (yield from _read_fence(block)) if block.options.fence_calls else False
    if not block.options.bare_json:
        return False
    if char == "{":
        return (yield from read_calls(block, BARE))
    if char == "[":
        return (yield from _read_list(block))
    return (yield from _read_named(block))


def _read_list(block: Block) -> Wait[bool]:
    """Read `[{…}]` or `[name(…)]`."""
    src = block.src
    start = src.pos
    src.pos += 1
    yield from skip_space(src)
    char = yield from peek(src)
    src.seek(start)
    if char != "{" and not char.isalpha() and char != "_":
        return False
    return (yield from read_json_or_python(block, "xlam-2" if char == "{" else "llama-4"))


def _read_named(block: Block) -> Wait[bool]:
    """Read a declared name and its arguments, in one of the forms that begin with the name."""
    src, registry = block.src, block.registry
    while True:
        rest = src.ahead(MAX_NAME)
        name = block.tools.longest(rest)
        if name or src.closed or not block.tools.begins(rest):
            break
        yield None
    if not name:
        return False
    start = src.pos
    src.pos += len(name)
    after = yield from one_of(src, registry.after_name_literals)
    src.seek(start)
    return bool(after) and (yield from registry.after_name[after](block))


def _read_fence(block: Block) -> Wait[bool]:
    """Read a fence with nothing but calls in it."""
    src = block.src
    fence = yield from take_one(src, FENCE)
    if not fence:
        return False
    yield from run_of(src, _INFO, MAX_NAME)
    any_call = False
    while True:
        yield from skip_space(src)
        closed = any_call and ((yield from close_fence(block)) or src.at_end())
        if closed:
            return True
        closer = yield from take_one(src, block.registry.closer_literals)
        if closer and not any_call:
            return False
        if closer:
            continue
        good = yield from _read_in_fence(block)
        if not good:
            return False
        any_call = True


def _read_in_fence(block: Block) -> Wait[bool]:
    src, registry = block.src, block.registry
    char = yield from peek(src)
    opener = yield from one_of(src, registry.anywhere_literals)
    if not opener and char in {"{", "["}:
        return (yield from read_calls(block, BARE) if char == "{" else _read_list(block))
    if opener not in registry.openers:
        return False
    yield from take(src, opener)
    return (yield from registry.openers[opener](block, opener))
