"""Mistral: `[TOOL_CALLS]`, then an array, or a name with its id and arguments."""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.objects import read_bare_arguments, read_calls
from supervisor.core.toolcalls.source import Wait, peek, run_of, skip_space, take
from supervisor.core.toolcalls.tools import MAX_NAME

_MARKER: Final = "[TOOL_CALLS]"
_CALL_ID: Final = "[CALL_ID]"
_ARGS: Final = "[ARGS]"
_NAME: Final = re.compile(r"[\w.:\-]*")
_ID: Final = re.compile(r"[A-Za-z0-9_\-]*")
_MAX_ID: Final = 64


def read_tool_calls(block: Block, opener: str) -> Wait[bool]:
    """Read what follows the marker: JSON, or a name with arguments."""
    yield from skip_space(block.src)
    char = yield from peek(block.src)
    if char in {"[", "{"}:
        return (yield from read_calls(block, "mistral-v7"))
    return (yield from read_named(block))


def read_named(block: Block) -> Wait[bool]:
    """Read `NAME{…}`, `NAME[ARGS]{…}` or `NAME[CALL_ID]ID[ARGS]{…}`."""
    src = block.src
    name = yield from run_of(src, _NAME, MAX_NAME)
    yield from skip_space(src)
    identity = ""
    with_id = yield from take(src, _CALL_ID)
    if with_id:
        identity = yield from run_of(src, _ID, _MAX_ID)
    arguments = yield from take(src, _ARGS)
    yield from skip_space(src)
    char = yield from peek(src)
    if not name or len(name) > MAX_NAME or char != "{":
        return False
    tool = yield from block.resolve(name)
    dialect = "mistral-v13" if arguments and not with_id else "mistral-v11"
    return (yield from read_bare_arguments(block, CallWriter(block, tool, dialect, identity or None)))


DIALECTS: Final = (
    Dialect(
        id="mistral-v7",
        models="Mistral up to v7: 7B v0.3, Nemo, Large 2407",
        openers={_MARKER: read_tool_calls},
        closers=("[/TOOL_CALLS]",),
        ends=("</s>",),
        tokens=("[TOOL_CONTENT]",),
        marks=((_MARKER,),),
    ),
    Dialect(
        id="mistral-v11",
        models="Mistral v11: Small 3.2",
        after_name={_CALL_ID: read_named},
        tokens=(_CALL_ID, _ARGS),
        marks=((_MARKER, _CALL_ID, _ARGS),),
        swallowed=((_MARKER, _ARGS),),
    ),
    Dialect(
        id="mistral-v13",
        models="Mistral v13: Devstral, Magistral, Ministral 3",
        after_name={_ARGS: read_named},
        think={"[THINK]": "[/THINK]"},
        tokens=(_ARGS,),
        marks=((_MARKER, _ARGS),),
        swallowed=((_MARKER, _ARGS),),
    ),
)
