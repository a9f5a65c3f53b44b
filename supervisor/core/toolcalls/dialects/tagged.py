"""`<tool_call>` and its relatives, where what follows decides: JSON, tags with parameters, pairs of tags, Python."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.dialects.gemma import read_call as read_gemma
from supervisor.core.toolcalls.dialects.keyvalue import read_pairs
from supervisor.core.toolcalls.dialects.tagvalue import tags_of
from supervisor.core.toolcalls.dialects.xml import read_functions
from supervisor.core.toolcalls.objects import read_calls
from supervisor.core.toolcalls.rawvalue import Framing
from supervisor.core.toolcalls.source import Literals, Source, Wait, one_of, peek, skip_space, take


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """What a wrapper's inside is called, by its form."""

    json: str
    tags: str
    pairs: str
    framing: Framing = "each"
    pairs_prefix: str = ""


_WRAPPERS: Final = {
    "<tool_call>": _Wrapper("hermes", "qwen3-coder", "glm-4.7"),
    "<seed:tool_call>": _Wrapper("hermes", "seed-oss", "glm-4.7", "pair"),
    "<longcat_tool_call>": _Wrapper("hermes", "qwen3-coder", "longcat", "each", "longcat_"),
    "<minimax:tool_call>": _Wrapper("hermes", "minimax-m2", "glm-4.7", "pair"),
}
_CALL: Final = Literals(["call:"])

_PREFIX: Final = re.compile(r"<([A-Za-z][A-Za-z0-9_.\-]{0,10}:)(invoke |function_calls>|tool_calls?>)")
_BEGUN: Final = re.compile(r"<[A-Za-z][A-Za-z0-9_.\-]{0,10}(?::[a-z_]{0,14})?")
_WORDS: Final = frozenset(
    word[:count] for word in ("invoke ", "function_calls>", "tool_call>", "tool_calls>") for count in range(len(word))
)
_LONGEST: Final = 28


def read_wrapped(block: Block, opener: str) -> Wait[bool]:
    """What stands in a wrapper."""
    src = block.src
    inside = _WRAPPERS[opener]
    start = src.pos
    yield from skip_space(src)
    char = yield from peek(src)
    if char in {"{", "["}:
        return (yield from read_calls(block, inside.json))
    if char == "<":
        return (yield from read_functions(block, inside.tags, framing=inside.framing))
    gemma = yield from one_of(src, _CALL)
    if gemma:
        return (yield from read_gemma(block, "gemma-4"))
    src.seek(start)
    yield from skip_space(src)
    return (yield from read_pairs(block, inside.pairs, inside.pairs_prefix))


class _Prefixed:
    """Tags with any prefix: `<PREFIX:invoke name="…">`, bare or in `<PREFIX:function_calls>`."""

    def opener(self, src: Source) -> Wait[str]:
        """Such a tag's beginning, if it stands here. Does not move."""
        while True:
            rest = src.ahead(_LONGEST)
            found = _PREFIX.match(rest)
            if found:
                return found.group()
            begun = _BEGUN.fullmatch(rest)
            word = rest.partition(":")[2]
            if len(rest) >= _LONGEST or src.closed or not ((begun and word in _WORDS) or rest == "<"):
                return ""
            yield None

    def read(self, block: Block, opener: str) -> Wait[bool]:
        """The calls behind it."""
        src = block.src
        prefix, _, word = opener[1:].partition(":")
        prefix += ":"
        if word == "invoke ":
            src.seek(src.pos - len(opener))
        dialect = "step3" if prefix == "steptml:" else "anthropic"
        framing: Framing = "pair" if prefix == "steptml:" else "each"
        if word.startswith("tool_call"):
            yield from skip_space(src)
            char = yield from peek(src)
            if char in {"{", "["}:
                return (yield from read_calls(block, "hermes"))
        yield from skip_space(src)
        own = yield from one_of(src, tags_of(prefix).calls)
        good = yield from read_functions(block, dialect, prefix if own else "", framing)
        if good and word.endswith(">"):
            last = src.pos
            yield from skip_space(src)
            closed = yield from take(src, f"</{prefix}{word}")
            src.seek(src.pos if closed else last)
        return good


PREFIXED: Final = _Prefixed()
READERS: Final = dict.fromkeys(_WRAPPERS, read_wrapped)
