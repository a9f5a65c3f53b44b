"""The value of one parameter between tags: `<parameter=KEY>VALUE</parameter>`, as `xml` reads them.

A value may hold such tags itself. A closing tag ends it only where another parameter, another call, the outer closing
tag or the end of the text follows; behind `</parameter></function>` any other text leaves a doubt, which what comes
later settles. Calls that are complete inside of the value, as in a text about calls, belong to it. A parameter that
begins before this one was closed is one of its own if the schema knows it and the call gives it nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter, Markers
from supervisor.core.toolcalls.rawvalue import EARLIER, Ending, RawForm, RawValue
from supervisor.core.toolcalls.schema import ANY_JSON, STRING, Types
from supervisor.core.toolcalls.source import Literals, Source, Wait, one_of, peek, skip_space, take, take_one, until
from supervisor.core.toolcalls.tools import MAX_NAME

STOP: Final = re.compile(r"[<>\n]")
_WRAPPERS: Final = ("tool_call", "tool_calls", "function_calls", "seed:tool_call", "minimax:tool_call")
_OPENERS: Final = (
    "<tool_call>",
    "<seed:tool_call>",
    "<minimax:tool_call>",
    "<function=",
    "<function name=",
    "<invoke ",
)
_WRAPPER_TAGS: Final = frozenset(one for one in _OPENERS if one.endswith(">"))
_KEY: Final = re.compile(r"""\s*=\s*["']?([^\s<>"']+)["']?\s*|\s+name\s*=\s*["']([^\s<>"']+)["'](.*)""")
_TYPED: Final = re.compile(r"""\s(?:string|type)\s*=\s*["'](\w+)["']""")
_HINTS: Final[Mapping[str, Types]] = {"true": STRING, "string": STRING, "false": ANY_JSON}
_BEGINS_CALL: Final = re.compile(r"[{\[<\w]")
_NOTHING: Final = Literals([""])
_REPEATED: Final = 4  # the same closing tag in a row


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of one prefix.

    Attributes:
        parameter: how a parameter begins.
        calls: how a call begins, without the rest of its tag.
        openers: how another call begins.
        behind: what may stand behind a call's closing tag, apart from another call.
        inside: what goes on behind the tag that begins a call.
        candidates: all that may end a value.
    """

    parameter: str
    parameter_closers: Literals
    call_closers: Literals
    outer_closers: Literals
    calls: Literals
    openers: Literals
    behind: Literals
    inside: Literals
    candidates: Literals


@lru_cache(maxsize=64)
def tags_of(registry: Markers, prefix: str) -> Tags:
    """Return the tags with this prefix before each name."""
    parameter = {f"</{prefix}parameter>", f"</{prefix}param>"}
    call = {f"</{prefix}function>", f"</{prefix}invoke>"}
    outer = {f"</{name}>" for name in _WRAPPERS} | {f"</{prefix}function_calls>", f"</{prefix}tool_calls>"}
    outer |= {"<｜tool▁call▁end｜>", "<｜tool_call_end｜>"}
    openers = {*_OPENERS, f"<{prefix}invoke "}
    begin = f"<{prefix}param"
    return Tags(
        parameter=begin,
        parameter_closers=Literals(parameter),
        call_closers=Literals(call),
        outer_closers=Literals(outer),
        calls=Literals([f"<{prefix}function", f"<{prefix}invoke"]),
        openers=Literals(openers),
        behind=Literals(registry.closers - parameter - call - {"</parameter>", "</arg_value>"} | outer),
        inside=Literals([begin, *call]),
        candidates=Literals([*parameter, *call, *outer, *openers, begin]),
    )


def read_header(src: Source) -> Wait[tuple[str, Types | None]]:
    """Return the parameter's name behind `<param`, empty if malformed, and the type that the tag gives."""
    yield from take(src, "eter")
    start = src.pos
    text = yield from until(src, STOP, MAX_NAME)
    closed = yield from take(src, ">")
    found = _KEY.fullmatch(text or "")
    if found is None or not closed:
        if not closed:
            src.seek(start)
        return "", None
    said = _TYPED.search(found[3] or "")
    return found[1] or found[2], _HINTS.get(said[1]) if said else None


@dataclass(frozen=True, slots=True)
class _Split:
    """Another parameter that may begin inside the value: the position of its tag, and that of its own value."""

    key: str
    hint: Types | None
    start: int
    behind: int


class TagValue:
    """One parameter's value; the source stands at its beginning.

    Args:
        raw: how `RawValue` is to read it.

    Attributes:
        splits: where parameters may begin in it. With any, the value is to be written once the whole call is known.
        repaired: a closing tag was missing.
    """

    def __init__(self, block: Block, tags: Tags, key: str, hint: Types | None, raw: RawForm) -> None:
        self.src = block.src
        self.tags = tags
        self.key = key
        self.hint = hint
        self.splits: list[_Split] = []
        self.repaired = False
        self._raw = RawValue(block, tags.candidates, self._judge, **raw)
        self._ends = block.registry.end_literals
        self._types: Set[str] = frozenset()
        self._seen: Set[str] = frozenset()
        self._inside = 0  # calls that are open inside of the value
        self._closed = -1  # where the last of them ended
        self._doubted = False

    def read(self, writer: CallWriter, seen: Set[str], *, early: bool) -> Wait[bool]:
        """Read the value; return False if the turn was cut inside it.

        Args:
            seen: the parameters that have come.
            early: a long string may be written while it arrives.
        """
        self._types, self._seen = writer.tool.types.keys(), seen
        good = yield from self._raw.scan(writer if early and self.key else None, self.key, self.hint)
        self.repaired = self.src.pos == self._raw.stop
        return good

    def write(self, writer: CallWriter, seen: Set[str]) -> Wait[None]:
        """Write the value, and the parameters that begin in it.

        Args:
            seen: all parameters of the call.
        """
        splits = self._real_splits(writer, seen)
        before = writer.item(self.key)
        yield from self._raw.write(writer, self.key, self.hint, stop=splits[0].start if splits else None)
        if before and not self._raw.ended:
            writer.put_back(self.key, before)  # the second one is but a beginning
        stops = [*(one.start for one in splits[1:]), self._raw.stop]
        for one, stop in zip(splits, stops, strict=bool(splits)):
            text = self._raw.text(one.behind, stop)
            yield from writer.value(one.key, writer.tool.from_text(one.key, text, one.hint))
            writer.repaired = True

    def _real_splits(self, writer: CallWriter, seen: Set[str]) -> list[_Split]:
        """Return the splits that are parameters: the call gives them nowhere else, and their text is of their type."""
        found: list[_Split] = []
        stop = self._raw.stop
        for one in reversed(self.splits):
            text = self._raw.text(one.behind, stop)
            if one.key not in seen and writer.tool.admits(one.key, text):
                found.insert(0, one)
                stop = one.start
        return found

    # -- where it ends -------------------------------------------------------------------------------------------------

    def _judge(self, literal: str) -> Wait[Ending | None]:
        """Judge a candidate end; see `rawvalue.Judge`."""
        tags = self.tags
        if literal == tags.parameter:
            yield from self._note_split()
            return None
        if literal in tags.openers.texts:
            return (yield from self._judge_opener(literal))
        if literal in tags.parameter_closers.texts:
            ending = yield from self._behind_parameter()
        elif literal in tags.call_closers.texts and self._inside:
            self._inside -= 1
            self._closed = self.src.pos + len(literal)
            return None
        else:
            ending = None if self._doubted or self._is_closed() else (yield from self._behind_lone(literal))
        if ending is None or not self._inside:
            return ending
        return Ending(ending.resume, sure=False)

    def _is_closed(self) -> bool:
        """Return whether the source stands at the tag that closes the surroundings of a call inside the value."""
        return self._closed >= 0 and not self.src.slice(self._closed, self.src.pos).strip()

    def _behind_parameter(self) -> Wait[Ending | None]:
        """Judge the closing tag of a parameter."""
        src, tags = self.src, self.tags
        yield from self._skip(tags.parameter_closers)
        resume = src.pos
        another = yield from take(src, tags.parameter)
        if another or (yield from self._follows(tags.outer_closers)):
            return Ending(resume)
        closed = yield from self._skip(tags.call_closers)
        if not closed:
            return None
        sure = yield from self._follows(tags.behind)
        self._doubted |= not sure and not self._inside
        return Ending(resume, sure)

    def _behind_lone(self, literal: str) -> Wait[Ending | None]:
        """Judge the closing tag of the call, or of its wrapper, where that of the parameter is missing."""
        src, tags = self.src, self.tags
        start = src.pos
        src.pos += len(literal)
        yield from skip_space(src)
        outer = yield from take_one(src, tags.outer_closers if literal in tags.call_closers.texts else _NOTHING)
        if outer:
            yield from skip_space(src)
        sure = yield from self._follows(self._ends if outer else _NOTHING)
        if not sure and not outer:
            return None
        self._doubted |= not sure and not self._inside
        return Ending(start, sure)

    def _judge_opener(self, literal: str) -> Wait[Ending | None]:
        """Judge the opener of a call: one inside the value, or the one behind a doubtful end."""
        src = self.src
        src.pos += len(literal)
        if literal not in _WRAPPER_TAGS:
            named = yield from until(src, STOP, MAX_NAME)
            closed = yield from take(src, ">")
            if not named or not closed:
                return None
        yield from skip_space(src)
        if self._doubted:
            char = yield from peek(src)
            return EARLIER if _BEGINS_CALL.match(char) else None
        if literal not in _WRAPPER_TAGS:
            goes_on = yield from one_of(src, self.tags.inside)
            self._inside += bool(goes_on)
        return None

    def _skip(self, closers: Literals) -> Wait[bool]:
        """Go past a closing tag and its repetitions; return whether there was one."""
        for count in range(_REPEATED):
            closer = yield from take_one(self.src, closers)
            if not closer:
                return count > 0
            yield from skip_space(self.src)
        return True

    def _follows(self, closers: Literals) -> Wait[bool]:
        """Return whether a new call, the end of the text, or one of the closers stands here."""
        if self.src.at_end():
            return not self.src.cut
        closer = yield from one_of(self.src, closers)
        opener = closer or (yield from one_of(self.src, self.tags.openers))
        return bool(opener) or (self.src.at_end() and not self.src.cut)

    def _note_split(self) -> Wait[None]:
        """Note the beginning of a parameter that the schema knows and that has no value yet."""
        src = self.src
        start = src.pos
        src.pos += len(self.tags.parameter)
        key, hint = yield from read_header(src)
        taken = key == self.key or key in self._seen or any(one.key == key for one in self.splits)
        if self._inside or self._doubted or taken or key not in self._types:
            return
        self.splits.append(_Split(key, hint, start, src.pos))
        self._raw.hold(start)
