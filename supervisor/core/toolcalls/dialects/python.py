"""Calls as Python: `[name(key=value)]`, lines of `name(…)`, `name.call(…)`. Values are literals: nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Set
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.jsontext import MAX_DEPTH, Json
from supervisor.core.toolcalls.literals import LiteralReader, NotALiteral
from supervisor.core.toolcalls.source import (
    Literals,
    Resume,
    Source,
    Wait,
    need,
    one_of,
    peek,
    run_of,
    skip_space,
    take,
)
from supervisor.core.toolcalls.tools import MAX_NAME, Tool

NAME: Final = re.compile(r"[A-Za-z0-9_.\-]*")
_BEGINS: Final = re.compile(r"[A-Za-z_]")
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")
_INTERESTING: Final = re.compile(r"[()\[\]{}\"'#]")
_COMMENT: Final = re.compile(r"[^\n]*")
_BARE: Final = re.compile(r"[^\s,()\[\]{}\"'#=]+(?:[ \t]+[^\s,()\[\]{}\"'#=]+)*")
_ALNUM: Final = re.compile(r"\w")
_OPERATORS: Final = frozenset({"if", "else", "lambda", "await", "and", "or", "not"})
_QUOTES: Final = Literals(['"""', "'''", '"', "'"])
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}


def read_list(block: Block, dialect: str) -> Wait[bool]:
    """Read a list of calls; the source stands at its bracket."""
    src = block.src
    opened = yield from take(src, "[")
    if not opened:
        return False
    any_call = False
    while True:
        yield from skip_space(src)
        char = yield from peek(src)
        if any_call and char == "]":
            src.pos += 1
            return True
        if any_call and char == ",":
            src.pos += 1
            continue
        if any_call and not _BEGINS.match(char):
            return not (block.whole and src.cut)
        good = yield from read_call(block, dialect)
        if not good:
            return False
        yield Resume()
        any_call = True


def read_lines(block: Block, dialect: str, ends: Callable[[Block], Wait[bool]]) -> Wait[bool]:
    """Read calls one after another, each perhaps inside `print(…)`, until `ends` says that they are over."""
    src = block.src
    any_call = False
    while True:
        yield from skip_space(src)
        over = yield from ends(block)
        if over or (any_call and src.at_end()):
            return any_call
        if any_call:
            char = yield from peek(src)
            if char in {";", ","}:
                src.pos += 1
                continue
        good = yield from _statement(block, dialect)
        if not good:
            return False
        yield Resume()
        any_call = True


def _statement(block: Block, dialect: str) -> Wait[bool]:
    printed = yield from take(block.src, "print(")
    if printed:
        yield from skip_space(block.src)
    good = yield from read_call(block, dialect)
    if not printed or not good:
        return good
    yield from skip_space(block.src)
    return (yield from take(block.src, ")"))


def read_call(block: Block, dialect: str, *, method: str = "", variables: Set[str] | None = None) -> Wait[bool]:
    """Read one call; the source stands at its name.

    Args:
        method: what is called of the name: `name.call(…)`.
        variables: bare words other than these are strings where the schema says string. None: no bare word is.
    """
    src = block.src
    name = yield from run_of(src, NAME, MAX_NAME)
    yield from skip_space(src)
    char = yield from peek(src)
    if char != "(" or not _BEGINS.match(name) or (method and not name.endswith(method)):
        return False
    tool = yield from block.resolve(name.removesuffix(method))
    start = src.pos
    good = yield from _balanced(src)
    if not good:
        return False
    arguments = arguments_of(src.slice(start + 1, src.pos - 1), tool, variables)
    if arguments is None:
        return False
    writer = CallWriter(block, tool, dialect)
    for key, value in arguments.items():
        yield from writer.value(key, tool.from_json(key, value))
    yield from writer.end()
    return True


def _balanced(src: Source) -> Wait[bool]:
    """Go past a bracket and everything up to the bracket that closes it."""
    stack: list[str] = []
    while True:
        found = src.find(_INTERESTING)
        src.pos = src.end if found < 0 else found
        if found < 0:
            if src.closed:
                return False
            yield None
            continue
        char = src.ahead(1)
        if char in "\"'#":
            good = yield from (_comment(src) if char == "#" else _string(src))
            if not good:
                return False
            continue
        src.pos += 1
        if char in _OPENING:
            stack.append(_OPENING[char])
        elif stack.pop() != char:
            return False
        if len(stack) > MAX_DEPTH:
            return False
        if not stack:
            return True


def _comment(src: Source) -> Wait[bool]:
    yield from run_of(src, _COMMENT, 1 << 30)
    return True


def _string(src: Source) -> Wait[bool]:
    """Go past a string."""
    yield from need(src, 3)
    quote = yield from one_of(src, _QUOTES)
    empty = len(quote) == 1 and src.ahead(2) == quote * 2
    src.pos += 2 if empty else len(quote)
    if empty:
        return True
    stop = re.compile(re.escape(quote) + r"|\\")
    while True:
        found = src.find(stop)
        if found < 0:
            if src.closed:
                return False
            src.pos = max(src.pos, src.end - len(quote) + 1)
            yield None
            continue
        src.pos = found
        if src.ahead(1) != "\\":
            src.pos += len(quote)
            return True
        yield from need(src, 2)
        src.pos = min(src.pos + 2, src.end)


def arguments_of(text: str, tool: Tool, variables: Set[str] | None = None) -> dict[str, Json] | None:
    """Return the arguments between a call's brackets, positional ones by name; None if any is no literal.

    Args:
        variables: see `read_call`.
    """
    reader = LiteralReader(text, comments=True)
    found: dict[str, Json] = {}
    place = 0
    try:
        reader.space()
        while reader.pos < len(text):
            start = reader.pos
            key = reader.word(_KEY)
            if not key or not reader.take("=") or text.startswith("=", reader.pos):
                reader.pos = start
                key = tool.order[place] if place < len(tool.order) else ""
                place += 1
            if not key:
                return None
            found[key] = _value(reader, variables if tool.says_string(key) else None)
            reader.take(",")
            reader.space()
    except NotALiteral:
        return None
    return found


def _value(reader: LiteralReader, variables: Set[str] | None) -> Json:
    """Return a value that a comma or the end follows. Raise NotALiteral if none stands here."""
    reader.space()
    start = reader.pos
    try:
        value = reader.value()
        if reader.is_last():
            return value
    except NotALiteral:
        pass
    reader.pos = start
    words = "" if variables is None else reader.word(_BARE)
    if not words or not reader.is_last() or any(not _is_plain(word, variables or ()) for word in words.split()):
        raise NotALiteral
    return words


def _is_plain(word: str, variables: Container[str]) -> bool:
    return bool(_ALNUM.search(word)) and word.partition(".")[0] not in variables and word not in _OPERATORS
