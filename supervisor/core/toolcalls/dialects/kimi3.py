"""Kimi K3's XTML: `<|open|>call tool="NAME" index="1"<|sep|>` with an `argument` for each key, or one `json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.jsonscan import JsonScan
from supervisor.core.toolcalls.objects import write_text
from supervisor.core.toolcalls.rawvalue import Ending, RawValue
from supervisor.core.toolcalls.schema import ANY_JSON, STRING, Types
from supervisor.core.toolcalls.source import Literals, Source, Wait, literals_of, one_of, run_of, skip_space, take
from supervisor.core.toolcalls.tools import MAX_NAME

_ID: Final = "kimi-k3"
_CALL: Final = '<|open|>call tool="'
_TOOLS: Final = "<|open|>tools<|sep|>"
_ARGUMENT: Final = "<|open|>argument "
_JSON: Final = "<|open|>json"
_ATTRIBUTES: Final = re.compile(r"[^<\n]*")
_ATTRIBUTE: Final = re.compile(r'\b(\w++)="([^"]*+)"')
_CALL_END: Final = "<|close|>call<|sep|>"
_ENDS: Final = Literals(["<|close|>argument<|sep|>", _CALL_END, _CALL])
_TOOLS_END: Final = "<|close|>tools<|sep|>"
_HINTS: Final[Mapping[str, Types]] = {"string": STRING}


def read_section(block: Block, opener: str) -> Wait[bool]:
    """Read the first call of a section."""
    yield from skip_space(block.src)
    begins = yield from take(block.src, _CALL)
    return begins and (yield from read_call(block, _CALL))


def read_call(block: Block, opener: str) -> Wait[bool]:
    """Read one call, behind the quote that begins its name."""
    attributes = yield from _attributes(block.src)
    if attributes is None:
        return False
    tool = yield from block.resolve(attributes.partition('"')[0])
    writer = CallWriter(block, tool, _ID)
    good = yield from _arguments(block, writer)
    if not good:
        return (yield from writer.broken())
    yield from writer.end()
    return True


def _attributes(src: Source) -> Wait[str | None]:
    text = yield from run_of(src, _ATTRIBUTES, MAX_NAME)
    closed = yield from take(src, "<|sep|>")
    return text if closed else None


def _arguments(block: Block, writer: CallWriter) -> Wait[bool]:
    src = block.src
    count = 0
    while True:
        yield from skip_space(src)
        closed = yield from take(src, _CALL_END)
        if closed:
            return True
        if src.at_end():
            writer.repaired = True
            return count > 0 and not src.cut
        begins = yield from take(src, _ARGUMENT)
        if not begins:
            good = not count and (yield from _json(block, writer))
            if not good:
                return False
            count += 1
            continue
        count += 1
        text = yield from _attributes(block.src)
        named = dict(_ATTRIBUTE.findall(text or ""))
        if "key" not in named:
            return False
        hint = _HINTS.get(named.get("type", "string"), ANY_JSON)
        value = RawValue(block, _ENDS, _Judge(block).judge)
        good = yield from value.read(writer, named["key"], hint)
        if not good:
            return False


def _json(block: Block, writer: CallWriter) -> Wait[bool]:
    """Read all arguments as one JSON object."""
    begins = yield from take(block.src, _JSON)
    attributes = yield from _attributes(block.src)
    if not begins or attributes is None:
        return False
    scan = JsonScan(block.src)
    text = yield from scan.value()
    good = text is not None and (yield from write_text(writer, text))
    yield from scan.space()
    yield from take(block.src, "<|close|>json<|sep|>")
    return good


class _Judge:
    """The judge of one argument's end: its own token, or that of the call, which stays, if its own is missing.

    A call that is complete inside of the argument belongs to it.
    """

    def __init__(self, block: Block) -> None:
        self.src = block.src
        self._next = literals_of(block.registry.ends, _CALL)
        self._behind_call = literals_of(block.registry.ends, _CALL, _TOOLS_END)
        self._inside = 0

    def judge(self, literal: str) -> Wait[Ending | None]:
        """Judge a candidate end; see `rawvalue.Judge`."""
        src = self.src
        start = src.pos
        src.pos += len(literal)
        if literal == _CALL:
            self._inside += (yield from _attributes(src)) is not None
            return None
        if literal == _CALL_END and self._inside:
            self._inside -= 1
            return None
        yield from skip_space(src)
        if literal == _CALL_END:
            yield from take(src, _TOOLS_END)
            yield from skip_space(src)
            sure = yield from self._follows(self._next)
            return Ending(start, sure)
        resume = src.pos
        another = yield from take(src, _ARGUMENT)
        if not another:
            closed = yield from take(src, _CALL_END)
            yield from skip_space(src)
            another = yield from self._follows(self._behind_call)
            if not closed and not src.at_end():
                return None
        return Ending(resume, sure=another and not self._inside)

    def _follows(self, literals: Literals) -> Wait[bool]:
        found = yield from one_of(self.src, literals)
        return bool(found) or (self.src.at_end() and not self.src.cut)


DIALECTS: Final = (
    Dialect(
        id=_ID,
        models="Kimi K3",
        openers={_TOOLS: read_section, _CALL: read_call},
        closers=(_CALL_END, _TOOLS_END),
        ends=("<|end_of_msg|>",),
        think={"<|open|>think<|sep|>": "<|close|>think<|sep|>"},
        tokens=("<|sep|>", "<|open|>", "<|close|>"),
        marks=(("<|open|>", "<|close|>"),),
    ),
)
