"""The code fences in which some formats write their calls."""

from __future__ import annotations

from typing import Final

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.source import Literals, Wait, skip_space, take

FENCE: Final = Literals(["```"])


def close_fence(block: Block) -> Wait[bool]:
    """Go past the fence that closes here, if there is one."""
    src = block.src
    start = src.pos
    yield from skip_space(src)
    closed = yield from take(src, "```")
    if not closed:
        src.seek(start)
    return closed
