"""The messages of `core/localai` on the wire: their descriptor is made of the dataclasses' fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from typing import Any, TypeVar

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from supervisor.core.localai.messages import Row, rows_of

_M = TypeVar("_M")
_PACKAGE = "backend"
_TYPES = {
    word: FieldDescriptorProto.Type.Value(f"TYPE_{word.upper()}")
    for word in ("string", "bytes", "bool", "int32", "uint64", "float", "double")
}


MOST_ENTRIES = 1 << 16
"""Of a field that is repeated, or a map: an empty one takes two bytes on the wire, and far more here."""


class TooMany(ValueError):
    """A field has more entries than are taken."""


class Wire:
    """Reads and writes messages.

    Args:
        messages: dataclasses of `core/localai/messages`; those that they are made of come by themselves.
    """

    def __init__(self, messages: Iterable[type]) -> None:
        file = descriptor(messages)
        pool = DescriptorPool()
        pool.Add(file)
        self._classes: dict[str, Any] = {
            one.name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{one.name}")) for one in file.message_type
        }

    def reader(self, message: type[_M]) -> Callable[[bytes], _M]:
        """Return what makes a message of bytes. It raises protobuf's DecodeError, and TooMany."""
        parse = self._classes[message.__name__].FromString
        return lambda data: _read(message, parse(data))

    def writer(self, message: type[_M]) -> Callable[[_M], bytes]:
        """Return what makes bytes of a message."""
        return lambda value: self._made(value).SerializeToString()

    def _made(self, value: Any) -> Any:
        given = {row.name: self._value(getattr(value, row.name)) for row in rows_of(type(value))}
        return self._classes[type(value).__name__](**given)

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return [self._value(one) for one in value] if value and is_dataclass(value[0]) else value
        return self._made(value) if is_dataclass(value) else value


def _read(message: type[_M], found: Any) -> _M:
    return message(**{row.name: _taken(row, getattr(found, row.name)) for row in rows_of(message)})


def _taken(row: Row, value: Any) -> Any:
    if (row.is_map or row.is_many) and len(value) > MOST_ENTRIES:
        raise TooMany(f"{row.name} has {len(value)} entries, and {MOST_ENTRIES} are taken")
    if row.is_map:
        return dict(value)
    if row.message is None:
        return tuple(value) if row.is_many else value
    return tuple(_read(row.message, one) for one in value) if row.is_many else _read(row.message, value)


def descriptor(messages: Iterable[type]) -> FileDescriptorProto:
    """Return the file of these messages, and of those that they are made of, as protobuf describes it."""
    file = FileDescriptorProto(name="localai.proto", package=_PACKAGE, syntax="proto3")
    waiting, found = list(messages), set[type]()
    while waiting:
        message = waiting.pop()
        if message in found:
            continue
        found.add(message)
        file.message_type.append(_message(message))
        waiting += [row.message for row in rows_of(message) if row.message is not None]
    return file


def _message(message: type) -> DescriptorProto:
    made = DescriptorProto(name=message.__name__)
    for row in rows_of(message):
        if row.is_map:
            entry = DescriptorProto(name=_entry(row))
            entry.options.map_entry = True
            entry.field.extend([_field("key", 1, "string"), _field("value", 2, row.kind)])
            made.nested_type.append(entry)
        made.field.append(_described(message, row))
    return made


def _described(message: type, row: Row) -> FieldDescriptorProto:
    if row.is_map:
        return _field(row.name, row.number, f".{_PACKAGE}.{message.__name__}.{_entry(row)}", many=True)
    kind = row.kind or f".{_PACKAGE}.{row.message.__name__ if row.message else ''}"
    return _field(row.name, row.number, kind, many=row.is_many)


def _field(name: str, number: int, kind: str, *, many: bool = False) -> FieldDescriptorProto:
    """Return a field; `kind` is one of proto3's words, or the full name of a message."""
    label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
    made = FieldDescriptorProto(name=name, number=number, label=label)
    if kind in _TYPES:
        made.type = _TYPES[kind]
    else:
        made.type, made.type_name = FieldDescriptorProto.TYPE_MESSAGE, kind
    return made


def _entry(row: Row) -> str:
    return "".join(word.capitalize() for word in row.name.split("_")) + "Entry"
