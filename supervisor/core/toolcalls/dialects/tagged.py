"""`<tool_call>` and its relatives, whose content decides the dialect: JSON, parameters, pairs of tags, Python."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects.gemma import read_call as read_gemma
from supervisor.core.toolcalls.dialects.keyvalue import read_pairs
from supervisor.core.toolcalls.dialects.tagvalue import tags_of
from supervisor.core.toolcalls.dialects.xml import read_bare, read_functions
from supervisor.core.toolcalls.objects import read_calls
from supervisor.core.toolcalls.rawvalue import Framing
from supervisor.core.toolcalls.source import Literals, Source, Wait, one_of, peek, skip_space, take

_CALL: Final = Literals(["call:"])

_PREFIX: Final = re.compile(r"<([A-Za-z][A-Za-z0-9_.\-]{0,10}:)(invoke |function_calls>|tool_calls?>)")
_BEGUN: Final = re.compile(r"<[A-Za-z][A-Za-z0-9_.\-]{0,10}(?::[a-z_]{0,14})?")
_WORDS: Final = frozenset(
    word[:count] for word in ("invoke ", "function_calls>", "tool_calls>") for count in range(len(word))
)
_LONGEST: Final = 28


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """The reader of a wrapper's content.

    Attributes:
        json, tags, pairs: the dialect, by the form of the inside.
    """

    json: str = "hermes"
    tags: str = "qwen3-coder"
    pairs: str = "glm-4.7"
    framing: Framing = "each"
    pairs_prefix: str = ""

    def __call__(self, block: Block, opener: str) -> Wait[bool]:
        src = block.src
        start = src.pos
        yield from skip_space(src)
        char = yield from peek(src)
        if char in {"{", "["}:
            return (yield from read_calls(block, self.json))
        if char == "<":
            return (yield from read_functions(block, self.tags, framing=self.framing))
        gemma = yield from one_of(src, _CALL)
        if gemma:
            return (yield from read_gemma(block, "gemma-4"))
        src.seek(start)
        yield from skip_space(src)
        return (yield from read_pairs(block, self.pairs, self.pairs_prefix))


class _Prefixed:
    """Tags with any prefix: `<PREFIX:invoke name="…">`, bare or in `<PREFIX:function_calls>`."""

    first = "<"

    def opener(self, src: Source) -> Wait[str]:
        """Return the beginning of such a tag at the reading position, without moving; empty if there is none."""
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

    def is_opener(self, text: str) -> bool:
        """Return whether the text is such a beginning."""
        return _PREFIX.fullmatch(text) is not None

    def read(self, block: Block, opener: str) -> Wait[bool]:
        """Read the calls behind such a beginning."""
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
        own = yield from one_of(src, tags_of(block.registry, prefix).calls)
        good = yield from read_functions(block, dialect, prefix if own else "", framing)
        if good and word.endswith(">"):
            last = src.pos
            yield from skip_space(src)
            closed = yield from take(src, f"</{prefix}{word}")
            src.seek(src.pos if closed else last)
        return good


DIALECTS: Final = (
    Dialect(
        id="hermes",
        models="Hermes 2/3, Qwen2.5, Qwen3, QwQ, Granite 4, MiMo, Ernie 4.5, Bielik, Reka Edge",
        openers={"<tool_call>": _Wrapped()},
        closers=("</tool_call>",),
        ends=("<|im_end|>", "<|endoftext|>"),
        think={"<think>": "</think>"},
        marks=(("<tool_call>",),),
        precedence=2,
    ),
    Dialect(
        id="seed-oss",
        models="Seed-OSS",
        openers={"<seed:tool_call>": _Wrapped(tags="seed-oss", framing="pair")},
        closers=("</seed:tool_call>",),
        think={"<seed:think>": "</seed:think>"},
        marks=(("<seed:tool_call>",),),
    ),
    Dialect(
        id="longcat",
        models="LongCat",
        openers={"<longcat_tool_call>": _Wrapped(pairs="longcat", pairs_prefix="longcat_")},
        closers=("</longcat_tool_call>",),
        tokens=("<longcat_arg_key>", "</longcat_arg_key>", "<longcat_arg_value>", "</longcat_arg_value>"),
    ),
    Dialect(
        id="minimax-m2",
        models="MiniMax M2",
        openers={"<minimax:tool_call>": _Wrapped(tags="minimax-m2", framing="pair")},
        closers=("</minimax:tool_call>",),
        marks=(("<minimax:tool_call>",),),
    ),
    Dialect(
        id="anthropic",
        models="models distilled from Claude, Muse Glimmer",
        openers={"<invoke name=": read_bare},
        pattern=_Prefixed(),
        closers=("</invoke>", "</function_calls>", "</atem:invoke>", "</atem:function_calls>"),
        ends=("<|eom|>", "<|eot|>"),
        marks=(("<atem:function_calls>",),),
    ),
)
