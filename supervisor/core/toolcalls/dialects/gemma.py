"""`call:NAME{key:value, …}` with quote tokens around strings: Gemma 4, FunctionGemma, and what becomes of it.

Keys are bare, strings stand between `<|"|>` or `<escape>` tokens, or in plain quotes, or bare; values nest. A bare
value ends at a bracket, or at a comma with a key behind it.
"""

from __future__ import annotations

import re
from typing import Final, cast

from supervisor.core.toolcalls.block import NOWHERE, Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.jsonscan import JsonScan
from supervisor.core.toolcalls.jsontext import MAX_DEPTH, Json, loads
from supervisor.core.toolcalls.rawvalue import Ending, RawValue
from supervisor.core.toolcalls.schema import ANY_JSON, typed
from supervisor.core.toolcalls.source import (
    Literals,
    Wait,
    literals_of,
    one_of,
    peek,
    run_of,
    skip_space,
    take,
    take_one,
)
from supervisor.core.toolcalls.tools import MAX_NAME

_NAME: Final = re.compile(r"[\w.:\-]*")
_KEY: Final = re.compile(r"[^\s:=,{}\[\]()\"'<>]*")
_TOKENS: Final = Literals(['<|"|>', "<escape>"])
_MARKER: Final = "<|tool_call>"
_FUNCTION_MARKER: Final = "<start_function_call>"
_CALL: Final = "call:"
_BARE: Final = re.compile(r"[^,{}\[\]()<]*")
_BRACKETS: Final = {"{": "}", "(": ")"}


def read_marked(block: Block, opener: str) -> Wait[bool]:
    """Read calls behind `<|tool_call>` or `<start_function_call>`, one after another."""
    yield from skip_space(block.src)
    return (yield from read_call(block, "functiongemma" if opener == _FUNCTION_MARKER else "gemma-4"))


def read_bare(block: Block, opener: str) -> Wait[bool]:
    """Read a call at the start of a line, without its marker."""
    block.src.seek(block.src.pos - len(opener))
    return (yield from read_call(block, "gemma-4"))


def read_call(block: Block, dialect: str) -> Wait[bool]:
    """Read one call; the source stands at `call:`."""
    src = block.src
    begins = yield from take(src, _CALL)
    if not begins:
        return False
    yield from skip_space(src)
    name = yield from run_of(src, _NAME, MAX_NAME)
    yield from skip_space(src)
    opening = yield from peek(src)
    if not name or len(name) > MAX_NAME or opening not in _BRACKETS:
        return False
    tool = yield from block.resolve(name)
    reader = _Values(block)
    values = yield from reader.members(_BRACKETS[opening])
    if values is None:
        return False
    writer = CallWriter(block, tool, dialect)
    writer.repaired = opening == "(" or reader.repaired
    for key, value in values.items():
        if isinstance(value, _Bare):
            yield from writer.value(key, tool.from_text(key, value.text, ANY_JSON))
        else:
            yield from writer.value(key, tool.from_json(key, resolved(value)))
    if tool is not NOWHERE:
        yield from writer.end()
    return True


class _Bare:
    """A value without quotes, whose type the schema gives."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def resolved(value: object) -> Json:
    """Return the value with every bare value in it read as the type that it looks like."""
    if isinstance(value, _Bare):
        return typed(value.text, ANY_JSON)
    if isinstance(value, dict):
        return {key: resolved(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item) for item in value]
    return cast(Json, value)


class _Values:
    """A reader of brackets and their contents; the source stands at the opening bracket."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.src = block.src
        self.repaired = False
        self._behind_call = literals_of(block.registry.closers, _MARKER, _FUNCTION_MARKER, _CALL)
        self._open: list[str] = []  # the brackets that have to be closed

    def members(self, closer: str) -> Wait[dict[str, object] | None]:
        """Return keys and values; None if this is no object, or does not end."""
        src = self.src
        src.pos += 1
        self._open.append(closer)
        found: dict[str, object] = {}
        while len(self._open) <= MAX_DEPTH:
            over = yield from self._closed(closer)
            if over is None or (over and self.repaired and not found):
                return None
            if over:
                self._open.pop()
                return found
            key = yield from self._key()
            if not key:
                return None
            value = yield from self._value(f",{closer}", keyed=True)
            if value is None:
                return None
            found[key] = value
            comma = yield from self._comma(closer)
            if not comma:
                return None
        return None

    def _items(self) -> Wait[list[object] | None]:
        self.src.pos += 1
        self._open.append("]")
        found: list[object] = []
        while len(self._open) <= MAX_DEPTH:
            over = yield from self._closed("]")
            if over is None:
                return None
            if over:
                self._open.pop()
                return found
            value = yield from self._value(",]", keyed=False)
            if value is None:
                return None
            found.append(value)
            comma = yield from self._comma("]")
            if not comma:
                return None
        return None

    def _closed(self, closer: str) -> Wait[bool | None]:
        """Return whether the bracket closes here; None if the text ends, or the bracket can never close."""
        src = self.src
        yield from skip_space(src)
        char = yield from peek(src)
        token = yield from one_of(src, _TOKENS)
        if char and (char != "<" or token):
            return (yield from take(src, closer))
        self.repaired = True  # the text, or the format, ends inside brackets
        return None if src.cut and not char else True

    def _comma(self, closer: str) -> Wait[bool]:
        yield from skip_space(self.src)
        char = yield from peek(self.src)
        if char == ",":
            self.src.pos += 1
            return True
        return char in {closer, "", "<"}

    def _key(self) -> Wait[str]:
        src = self.src
        char = yield from peek(src)
        token = yield from take_one(src, _TOKENS)
        if token:
            key = yield from self._until(token)
        elif char in {'"', "'"}:
            self.repaired = True
            key = yield from self._quoted()
        else:
            key = yield from run_of(src, _KEY, MAX_NAME)
        yield from skip_space(src)
        separator = yield from peek(src)
        if separator not in {":", "="} or key is None:
            return ""
        src.pos += 1
        yield from skip_space(src)
        return key

    def _value(self, stops: str, *, keyed: bool) -> Wait[object]:
        src = self.src
        char = yield from peek(src)
        if char == "{":
            return (yield from self.members("}"))
        if char == "[":
            return (yield from self._items())
        token = yield from take_one(src, _TOKENS)
        if token:
            return (yield from self._string(token))
        if char in {'"', "'"}:
            start = src.pos
            text = yield from self._quoted()
            yield from skip_space(src)
            after = yield from peek(src)
            if text is None or after in stops:
                self.repaired = True
                return text
            src.seek(start)
        return (yield from self._bare(stops, keyed=keyed))

    def _string(self, token: str) -> Wait[str | None]:
        """Return the string up to the token that ends it, and go past that. The token may also be part of the text."""
        raw = RawValue(self.block, Literals([token]), self._judge)
        good = yield from raw.scan(None)
        return raw.text(raw.start, raw.stop) if good and raw.ended else None

    def _judge(self, literal: str) -> Wait[Ending | None]:
        """Judge a candidate end, as `rawvalue.Judge` does: a bracket, a comma or the call's end follows a string."""
        src = self.src
        src.pos += len(literal)
        resume = src.pos
        yield from skip_space(src)
        left = list(self._open)
        while left and (yield from take(src, left[-1])):
            left.pop()
            yield from skip_space(src)
        if src.at_end():
            return Ending(resume, sure=not src.cut)
        if left and (yield from take(src, ",")):
            yield from skip_space(src)
            sure = yield from self._begins(left[-1])
        else:
            sure = bool((yield from one_of(src, self._behind_call)))
        return Ending(resume, sure) if sure or len(left) < len(self._open) else None

    def _begins(self, closer: str) -> Wait[bool]:
        """Return whether a member or an item begins here, or the bracket closes."""
        char = yield from peek(self.src)
        if char == closer:
            return True
        if closer == "]":
            return char in {'"', "'", "{", "["} or bool((yield from one_of(self.src, _TOKENS)))
        repaired = self.repaired
        key = yield from self._key()
        self.repaired = repaired
        return bool(key)

    def _until(self, token: str) -> Wait[str | None]:
        """Return the text up to the token, and go past the token."""
        src = self.src
        stop = re.compile(re.escape(token))
        start = src.pos
        while True:
            found = src.find(stop)
            if found >= 0:
                src.pos = found + len(token)
                return src.slice(start, found)
            if src.closed:
                return None
            src.pos = max(src.pos, src.end - len(token) + 1)
            yield None

    def _quoted(self) -> Wait[str | None]:
        text = yield from JsonScan(self.src).string()
        if text is None:
            return None
        value = loads(text)
        return value if isinstance(value, str) else None

    def _bare(self, stops: str, *, keyed: bool) -> Wait[object]:
        """Return a value without quotes, up to a closing bracket or to a comma that begins a new member."""
        src = self.src
        start = src.pos
        while True:
            yield from run_of(src, _BARE, 1 << 30)
            char = yield from peek(src)
            if not char or char in stops[1:] or char in "<{":
                break
            if char == ",":
                begins = yield from self._begins_member(keyed)
                if begins:
                    break
            src.pos += 1
        text = src.slice(start, src.pos).strip()
        return _Bare(text) if text else None

    def _begins_member(self, keyed: bool) -> Wait[bool]:
        """Return whether a key stands behind the comma here."""
        if not keyed:
            return True
        src = self.src
        start = src.pos
        src.pos += 1
        yield from skip_space(src)
        yield from run_of(src, _KEY, MAX_NAME)
        yield from skip_space(src)
        char = yield from peek(src)
        begins = char in {":", "="} or src.at_end()
        quoted = src.pos == start + 1 or char in {'"', "'", "<", "}", ")"}
        src.seek(start)
        return begins or quoted


DIALECTS: Final = (
    Dialect(
        id="gemma-4",
        models="Gemma 4",
        openers={_MARKER: read_marked},
        line_openers={_CALL: read_bare},
        closers=("<tool_call|>",),
        ends=("<turn|>",),
        think={"<|channel>thought": "<channel|>"},
        tokens=('<|"|>', "<|channel>"),
        marks=((_MARKER,),),
        swallowed=((_MARKER,),),
    ),
    Dialect(
        id="functiongemma",
        models="FunctionGemma",
        openers={_FUNCTION_MARKER: read_marked},
        closers=("<end_function_call>",),
        tokens=("<escape>",),
    ),
)
