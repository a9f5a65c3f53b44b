"""Calls as JSON objects: `{"name": …, "arguments": {…}}` and its relatives, alone, in arrays, or in a row."""

from __future__ import annotations

from typing import Final

from supervisor.core.toolcalls.block import NOWHERE, Block, CallWriter
from supervisor.core.toolcalls.jsonscan import JsonScan, read_json
from supervisor.core.toolcalls.jsontext import Json, loads
from supervisor.core.toolcalls.members import Members, short_string
from supervisor.core.toolcalls.source import Resume, Wait, finished, peek
from supervisor.core.toolcalls.tools import MAX_NAME, Tool

BARE: Final = "bare"
"""The dialect to be named where there is no marker: the keys decide."""
_OTHERWISE: Final = "qwen2.5-coder"
_NAMES: Final = frozenset({"name", "tool_name"})
_ARGUMENTS: Final = frozenset({"arguments", "parameters", "args"})
_IDS: Final = frozenset({"id", "tool_call_id"})
_LISTS: Final = frozenset({"tool_calls", "tool_call"})
_TYPES: Final = frozenset({"function", "function_call", "tool_call", "tool_use"})
_ID_LAST: Final = frozenset({"mistral-v7"})  # write the id behind the arguments, and want it back
_MAX_ID: Final = 128


def read_calls(block: Block, dialect: str, *, keyed: bool = False) -> Wait[bool]:
    """Read calls after a marker: an object, several one after another, or an array of them.

    Args:
        keyed: the tool's name is the key of its arguments.

    Returns:
        Whether what was read up to the source's position is calls (of known tools or not).
    """
    scan = JsonScan(block.src)
    yield from scan.space()
    char = yield from peek(block.src)
    if char == "[":
        block.src.pos += 1
        return (yield from _read_array(block, scan, dialect, keyed=keyed))
    return (yield from _read_row(block, scan, dialect, keyed=keyed))


def _read_row(block: Block, scan: JsonScan, dialect: str, *, keyed: bool) -> Wait[bool]:
    src = block.src
    while True:
        good = yield from read_object(block, scan, dialect, keyed=keyed)
        if not good:
            return False
        yield Resume()
        last = src.pos
        yield from scan.space()
        char = yield from peek(src)
        if char in {",", ";"}:
            src.pos += 1
            yield from scan.space()
            char = yield from peek(src)
        if char != "{":
            src.seek(last)
            return True


def _read_array(block: Block, scan: JsonScan, dialect: str, *, keyed: bool) -> Wait[bool]:
    last = -1
    while True:
        yield from scan.space()
        char = yield from peek(block.src)
        if char in {",", "]"} and last >= 0:
            block.src.pos += 1
            if char == "]":
                return True
            continue
        if char != "{":
            if last >= 0:
                block.src.seek(last)
            return last >= 0
        good = yield from read_object(block, scan, dialect, keyed=keyed)
        if not good:
            return False
        yield Resume()
        last = block.src.pos


def read_object(block: Block, scan: JsonScan, dialect: str, *, keyed: bool = False) -> Wait[bool]:
    """Read one object that is a call, or holds calls."""
    return (yield from _CallObject(block, scan, dialect, keyed=keyed).read())


class _CallObject:
    """The fields of one call, in any order."""

    def __init__(self, block: Block, scan: JsonScan, dialect: str, *, keyed: bool) -> None:
        self.block = block
        self.scan = scan
        self.dialect = dialect
        self.keyed = keyed
        self.tool: Tool | None = None
        self.id: str | None = None
        self.text: str | None = None  # the arguments, where they come before the name
        self.writer: CallWriter | None = None
        self.done = False  # what was inside has been given out
        self.good = True

    def read(self) -> Wait[bool]:
        good = yield from self._fields()
        if not good or not self.good:
            return (yield from self._failed())
        if self.done:
            return True
        if self.tool is None or (self.block.whole and self.writer is None and self.text is None):
            return False
        return (yield from self._finish(self.tool))

    def _finish(self, tool: Tool) -> Wait[bool]:
        if self.writer is None:
            self.writer = CallWriter(self.block, tool, self.dialect)
            good = yield from write_text(self.writer, self.text or "{}")
            if not good:
                return False
        if self.writer.is_schema() and not self.writer.started:
            return False
        self.writer.dialect = _OTHERWISE if self.dialect == BARE else self.dialect
        self.writer.id = self.writer.id or self.id
        self.writer.brackets = True
        self.writer.repaired |= self.scan.repaired
        yield from self.writer.end()
        return True

    def _failed(self) -> Wait[bool]:
        if self.writer is None:
            return False
        return (yield from self.writer.broken())

    def _fields(self) -> Wait[bool]:
        members = Members(self.scan)
        opened = yield from members.enter()
        if not opened:
            return False
        while True:
            key = yield from members.key()
            if key is None:
                return members.good
            good = yield from self._field(key, members)
            if not good:
                return False

    def _field(self, key: str, members: Members) -> Wait[bool]:
        if self.keyed and key not in _NAMES | _ARGUMENTS:
            return (yield from self._keyed(key))
        if key in _NAMES:
            return (yield from self._name())
        if key in _ARGUMENTS:
            self._shaped("llama-3-json" if key == "parameters" else "")
            return (yield from self._arguments(members))
        if key in _IDS:
            return (yield from self._id())
        if key == "type":
            kind = yield from short_string(self.scan, MAX_NAME)
            return kind in _TYPES
        if key == "function":
            self._shaped("openai")
            char = yield from peek(self.block.src)
            return (yield from self._fields() if char == "{" else self._name())
        if key in _LISTS:
            self._shaped("openai")
            self.done = yield from read_calls(self.block, self.dialect)
            return self.done
        return False

    def _shaped(self, dialect: str) -> None:
        """Set the dialect of an object without a marker by its keys."""
        if self.dialect == BARE and dialect:
            self.dialect = dialect

    def _name(self) -> Wait[bool]:
        if self.tool is not None:
            return False
        written = yield from short_string(self.scan, MAX_NAME)
        if written is None:
            return False
        self.tool = yield from self.block.resolve(written)
        return True

    def _keyed(self, key: str) -> Wait[bool]:
        tool = yield from self.block.resolve(key)
        writer = CallWriter(self.block, tool, self.dialect)
        good = yield from read_arguments(self.scan, writer)
        if good:
            writer.repaired, writer.brackets = self.scan.repaired, True
            yield from writer.end()
            self.done = True
        return good

    def _arguments(self, members: Members) -> Wait[bool]:
        if self.writer is not None or self.text is not None:
            return False
        empty = yield from members.skip_null()
        if empty:
            self.text = "{}"
            return True
        if self.tool is None:
            self.text = yield from self.scan.value()
            return self.text is not None
        self.writer = CallWriter(self.block, self.tool, self.dialect, self.id)
        if self.dialect in _ID_LAST and self.id is None:
            self.writer.wait()
        return (yield from read_arguments(self.scan, self.writer))

    def _id(self) -> Wait[bool]:
        char = yield from peek(self.block.src)
        if char in {'"', "'"}:
            written = yield from short_string(self.scan, _MAX_ID)
            self.id = written or None
            return written is not None
        number = yield from self.scan.value()
        return number is not None and len(number) <= _MAX_ID


def read_arguments(scan: JsonScan, writer: CallWriter) -> Wait[bool]:
    """Write the arguments that begin here: an object, or a string that holds one."""
    char = yield from peek(scan.src)
    if char != "{":
        text = yield from scan.value()
        return text is not None and (yield from write_text(writer, text))
    members = Members(scan)
    yield from members.enter()
    while True:
        key = yield from members.key()
        if key is None:
            return members.good
        good = yield from _read_argument(scan, writer, key)
        if not good:
            return False


def _read_argument(scan: JsonScan, writer: CallWriter, key: str) -> Wait[bool]:
    char = yield from peek(scan.src)
    if not writer.tool.is_plain_string(key) or not scan.may_quote(char):
        text = yield from scan.value()
        if text is None:
            return False
        yield from writer.value(key, writer.tool.from_json(key, loads(text)))
        return True
    scan.src.pos += 1
    writer.begin_string(key)
    while True:
        part = yield from scan.string_part(char)
        if part is None:
            return False
        if not part:
            break
        yield from writer.string_part(part)
    yield from writer.end_string()
    return True


def write_text(writer: CallWriter, text: str) -> Wait[bool]:
    """Write arguments that are complete JSON text: an object, or strings in strings around one; empty is none."""
    value: Json = loads(text)
    for _ in range(3):
        if not isinstance(value, str):
            break
        inner = finished(read_json(value)) if value.strip() else "{}"
        if inner is None:
            return False
        value = loads(inner)
    if not isinstance(value, dict):
        return False
    for key, item in value.items():
        yield from writer.value(key, writer.tool.from_json(key, item))
    return True


def read_bare_arguments(block: Block, writer: CallWriter) -> Wait[bool]:
    """Read a JSON object of arguments at the source's position and write the call.

    Nothing at all is an empty object.
    """
    if writer.tool is NOWHERE:
        scan = JsonScan(block.src)
        text = yield from scan.value()
        return text is not None
    scan = JsonScan(block.src)
    yield from scan.space()
    good = yield from read_arguments(scan, writer)
    if not good:
        return (yield from writer.broken())
    writer.repaired |= scan.repaired
    writer.brackets = True
    yield from writer.end()
    return True
