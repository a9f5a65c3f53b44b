"""DeepSeek's DSML: the tags of `xml`, each with `｜DSML｜` before its name, types in an attribute."""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects.xml import read_functions
from supervisor.core.toolcalls.source import Literals, Wait, one_of, run_of, skip_space, take

_ID: Final = "deepseek-v3.2"
_PREFIX: Final = "｜DSML｜"
_WORD: Final = re.compile(r"[a-z_ ]*")
_WRAPPERS: Final = frozenset({"function_calls", "tool_calls", "calls"})
_SPACED: Final = Literals([f"<{_PREFIX} "])
_MAX_WORD: Final = 24


def read_dsml(block: Block, opener: str) -> Wait[bool]:
    """Read a call, or a block of several."""
    src = block.src
    start = src.pos - len(opener)
    word = yield from run_of(src, _WORD, _MAX_WORD)
    if word.strip() in _WRAPPERS:
        closed = yield from take(src, ">")
        if not closed:
            return False
        yield from skip_space(src)
    elif word.strip() in {"invoke name", "invoke"}:
        src.seek(start)
    else:
        return False
    spaced = yield from one_of(src, _SPACED)
    return (yield from read_functions(block, _ID, f"{_PREFIX} " if spaced else _PREFIX, "pair"))


DIALECTS: Final = (
    Dialect(
        id=_ID,
        models="DeepSeek V3.2, V4 (DSML)",
        openers={f"<{_PREFIX}": read_dsml},
        closers=tuple(f"</{_PREFIX}{word}>" for word in ("invoke", "function_calls", "tool_calls", " calls", "calls")),
        tokens=(_PREFIX,),
        marks=(("DSML",),),
    ),
)
