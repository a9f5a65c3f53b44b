"""Formats whose tokens stand around a name and JSON arguments: DeepSeek, Step3, Kimi K2, Solar."""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects.xml import read_functions
from supervisor.core.toolcalls.objects import read_bare_arguments, read_calls
from supervisor.core.toolcalls.source import (
    Aside,
    Literals,
    Wait,
    one_of,
    peek,
    run_of,
    skip_space,
    take,
    take_one,
    until,
)
from supervisor.core.toolcalls.tools import MAX_NAME

_JOINTS: Final = ("▁", "_", " ", "\\_")
_SECTIONS: Final = (*(f"<｜tool{joint}calls{joint}begin｜>" for joint in _JOINTS), "<｜tool▁calls｜>")
_BEGINS: Final = Literals([f"<｜tool{joint}call{joint}begin｜>" for joint in _JOINTS])
_SEPS: Final = Literals([f"<｜tool{joint}sep｜>" for joint in _JOINTS])
_ENDS: Final = Literals([f"<｜tool{joint}call{joint}end｜>" for joint in _JOINTS])
_TYPES: Final = frozenset({"function", "tool"})
_STOP: Final = re.compile(r"[<\n{`]")
_FENCE: Final = "```"
_INFO: Final = re.compile(r"[a-z]*")

_KIMI_SECTION: Final = "<|tool_calls_section_begin|>"
_KIMI_CALL: Final = "<|tool_call_begin|>"
_KIMI_ARGUMENTS: Final = Literals(["<|tool_call_argument_begin|>", "<|tool_call_end|>"])
_KIMI_ID: Final = re.compile(r"functions\.[\w.\-]+:[0-9]+")
_ANGLE: Final = re.compile(r"<")
_MAX_BETWEEN: Final = 256

_SOLAR_CALL: Final = "<|tool_call:begin|>"
_SOLAR_ID: Final = re.compile(r"[\w.:\-]*")


def read_deepseek_section(block: Block, opener: str) -> Wait[bool]:
    """Read the first call of a section."""
    yield from skip_space(block.src)
    begin = yield from take_one(block.src, _BEGINS)
    return bool(begin) and (yield from read_deepseek(block, begin))


def read_deepseek(block: Block, opener: str) -> Wait[bool]:
    """Read `function<sep>NAME` with fenced JSON, `NAME<sep>JSON`, or Step3's tags."""
    src = block.src
    yield from skip_space(src)
    name = yield from until(src, _STOP, MAX_NAME)
    sep = yield from take_one(src, _SEPS)
    if name is None or not sep:
        return False
    dialect = "deepseek-v3.1"
    if name.strip() in _TYPES:
        dialect = "deepseek-v3"
        yield from skip_space(src)
        char = yield from peek(src)
        if char == "<":
            return (yield from read_functions(block, "step3", "steptml:", "pair"))
        name = yield from until(src, _STOP, MAX_NAME)
    if not name or not name.strip():
        return False
    tool = yield from block.resolve(name)
    writer = CallWriter(block, tool, dialect)
    fenced = yield from _open_fence(block)
    ended = yield from one_of(src, _ENDS)
    if ended:
        yield from writer.end()
        return True
    good = yield from read_bare_arguments(block, writer)
    if good and fenced:
        start = src.pos
        yield from skip_space(src)
        closed = yield from take(src, _FENCE)
        src.seek(src.pos if closed else start)
    return good


def _open_fence(block: Block) -> Wait[bool]:
    yield from skip_space(block.src)
    fenced = yield from take(block.src, _FENCE)
    if fenced:
        yield from run_of(block.src, _INFO, 16)
        yield from skip_space(block.src)
    return fenced


def read_kimi_section(block: Block, opener: str) -> Wait[bool]:
    """Read the first call of a section; text may have come between."""
    src = block.src
    yield from skip_space(src)
    begins = yield from take(src, _KIMI_CALL)
    if not begins:
        start = src.pos
        between = yield from until(src, _ANGLE, _MAX_BETWEEN)
        begins = yield from take(src, _KIMI_CALL)
        if between is None or not begins:
            return False
        yield Aside(start, start + len(between))
    return (yield from read_kimi(block, _KIMI_CALL))


def read_kimi(block: Block, opener: str) -> Wait[bool]:
    """Read `functions.NAME:N` and the arguments."""
    src = block.src
    yield from skip_space(src)
    name = yield from until(src, _ANGLE, MAX_NAME)
    token = yield from take_one(src, _KIMI_ARGUMENTS)
    if not name or not name.strip() or not token:
        return False
    tool = yield from block.resolve(name)
    written = name.strip()
    writer = CallWriter(block, tool, "kimi-k2", written if _KIMI_ID.fullmatch(written) else None)
    yield from skip_space(src)
    ended = yield from one_of(src, _KIMI_ARGUMENTS)
    if ended or token == "<|tool_call_end|>":
        yield from writer.end()
        return True
    return (yield from read_bare_arguments(block, writer))


def read_solar(block: Block, opener: str) -> Wait[bool]:
    """Read `ID<|tool_call:name|>NAME<|tool_call:args|>JSON`."""
    src = block.src
    identity = yield from run_of(src, _SOLAR_ID, MAX_NAME)
    named = yield from take(src, "<|tool_call:name|>")
    name = yield from until(src, _ANGLE, MAX_NAME)
    begins = yield from take(src, "<|tool_call:args|>")
    if not named or not name or not begins:
        return False
    tool = yield from block.resolve(name)
    return (yield from read_bare_arguments(block, CallWriter(block, tool, "solar-open", identity or None)))


def read_bar_tool_calls(block: Block, opener: str) -> Wait[bool]:
    """Read what follows `<|tool_calls|>`: Solar's calls, or an array."""
    yield from skip_space(block.src)
    solar = yield from take(block.src, _SOLAR_CALL)
    if solar:
        return (yield from read_solar(block, opener))
    return (yield from read_calls(block, "phi-4-mini"))


DIALECTS: Final = (
    Dialect(
        id="deepseek-v3",
        models="DeepSeek V3, R1",
        openers={**dict.fromkeys(_SECTIONS, read_deepseek_section), **dict.fromkeys(_BEGINS.texts, read_deepseek)},
        closers=tuple(f"<｜tool{joint}{call}{joint}end｜>" for joint in _JOINTS for call in ("call", "calls")),
        ends=("<｜end▁of▁sentence｜>",),
        tokens=("<｜tool▁sep｜>",),
        marks=((_SECTIONS[0], "```json"),),
    ),
    Dialect(id="deepseek-v3.1", models="DeepSeek V3.1", marks=((_SECTIONS[0],),)),
    Dialect(id="step3", models="Step3", closers=("</steptml:invoke>",), tokens=("<｜tool_sep｜>",)),
    Dialect(
        id="kimi-k2",
        models="Kimi K2, K2.5",
        openers={_KIMI_SECTION: read_kimi_section, _KIMI_CALL: read_kimi},
        closers=("<|tool_call_end|>", "<|tool_calls_section_end|>"),
        tokens=("<|tool_call_argument_begin|>",),
        marks=((_KIMI_SECTION,),),
    ),
    Dialect(
        id="solar-open",
        models="Solar Open",
        openers={_SOLAR_CALL: read_solar, "<|tool_calls|>": read_bar_tool_calls},
        closers=("<|tool_call:end|>",),
        ends=("<|calls|>", "<|end|>"),
        tokens=("<|tool_call:name|>", "<|tool_call:args|>"),
        marks=((_SOLAR_CALL,),),
    ),
)
