"""Multipart forms: what is in one, found while it arrives, and the same form with other fields.

Files are what makes forms large. Of a file only its place in the body is noted; the fields are small and become a JSON
object, in which they can be looked at and changed like those of any other request. `FormOutline.pieces` makes a form
again, from such an object and the files as the client sent them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from supervisor.core.requests.outline import Payload
from supervisor.core.text.foreignjson import parse
from supervisor.errors import InvalidRequest, PayloadTooLarge

MOST_PARTS: Final = 128
"""Fields and files of a form."""

MOST_TEXT: Final = 1 << 16
"""Bytes of all its fields together."""

_KIND: Final = b"multipart/form-data"
_LONGEST_BOUNDARY: Final = 200
_LONGEST_TYPE: Final = 1024  # bytes; thousands of parameters take a tenth of a second to be read
_ENCODED: Final = "surrogateescape"  # bytes that are no UTF-8 reach the engine as they came
_FLAGS: Final = {True: "true", False: "false"}


def boundary_of(content_type: bytes) -> bytes:
    """Return the boundary between the parts of a form. Raise InvalidRequest where the type is not a form's."""
    kind, options = parse_options_header(content_type[:_LONGEST_TYPE].decode("latin-1"))
    boundary = options.get(b"boundary", b"")
    if kind.strip() != _KIND or not 0 < len(boundary) <= _LONGEST_BOUNDARY or len(content_type) > _LONGEST_TYPE:
        raise InvalidRequest("Send a form: `Content-Type: multipart/form-data` with its boundary, as `curl -F` does.")
    return boundary


@dataclass(slots=True)
class _Part:
    """A part that has begun. `start`: of its content in the body, -1 while there is none. `size`: of its content."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    name: str | None = None
    is_file: bool = False
    start: int = -1
    size: int = 0
    text: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FormFile:
    """A file of a form: its headers, and the place of its content in the body."""

    head: bytes
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Form:
    """What a form holds.

    Attributes:
        fields: texts by name; of a name that occurs more than once, the list of them.
        files: in their order.
    """

    fields: Mapping[str, str | list[str]]
    files: tuple[FormFile, ...]


class FormReader:
    """The reader of one form. A step of some KiB takes milliseconds at most, whatever is in it."""

    def __init__(self, boundary: bytes) -> None:
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header,
                "on_headers_finished": self._named,
                "on_part_data": self._data,
                "on_part_end": self._end,
                "on_end": self._over,
            },
        )
        self._delimiter = b"\r\n--" + boundary
        self._tail = b""  # what may be the beginning of one
        self._ends = False  # the last one was seen
        self._piece = b""
        self._before = 0  # bytes before the piece
        self._part = _Part()
        self._name = b""  # of a header
        self._value = b""
        self._parts = 0
        self._text = 0
        self._fields: dict[str, str | list[str]] = {}
        self._files: list[FormFile] = []
        self._complete = False

    def feed(self, piece: bytes) -> None:
        """Read what has arrived. Raises InvalidRequest, PayloadTooLarge."""
        self._piece = piece
        self._check(piece)
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise InvalidRequest(f"The form is broken: {error}.") from None
        self._before += len(piece)

    def finish(self) -> Form:
        """Return what was read. Raise InvalidRequest where the end is missing."""
        if not self._complete:
            raise InvalidRequest("The form is broken: the boundary that ends it is missing.")
        return Form(self._fields, tuple(self._files))

    def _check(self, piece: bytes) -> None:
        """Raise where a boundary ends no part. The engine refuses such a form too, and the parser reads it slowly."""
        window, length = self._tail + piece, len(self._delimiter)
        at = window.find(self._delimiter)
        while 0 <= at <= len(window) - length - 2 and not self._ends:
            after = window[at + length : at + length + 2]
            self._ends = after == b"--"
            if after != b"\r\n" and not self._ends:
                raise InvalidRequest("The form is broken: its boundary stands within a part.")
            at = window.find(self._delimiter, at + length)
        self._tail = window[-length - 1 :]

    # what the parser calls

    def _begin(self) -> None:
        self._part = _Part()
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise PayloadTooLarge(f"The form has more than {MOST_PARTS} parts.")

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._part.headers.append((self._name, self._value))
        self._name = self._value = b""

    def _named(self) -> None:
        part = self._part
        for name, value in part.headers:
            if name.lower() == b"content-disposition":
                _, options = parse_options_header(value.decode("latin-1"))
                part.name = options[b"name"].decode("utf-8", _ENCODED) if b"name" in options else None
                part.is_file = b"filename" in options
        if part.name is None:
            raise InvalidRequest("The form is broken: a part of it has no name.")

    def _data(self, data: bytes, start: int, end: int) -> None:
        part, size = self._part, end - start
        if part.start < 0:  # what looked like a boundary at the end of the last piece, and is none, is given late
            part.start = self._before + (start if data is self._piece else -size)
        part.size += size
        if not part.is_file:
            self._text += size
            if self._text > MOST_TEXT:
                raise PayloadTooLarge(
                    f"The fields of the form have more than {MOST_TEXT >> 10} KiB; a file needs a `filename`."
                )
            part.text.append(data[start:end])

    def _end(self) -> None:
        part = self._part
        assert part.name is not None  # or it would have been refused
        if part.is_file:
            head = b"\r\n".join(name + b": " + value for name, value in part.headers)
            start = max(part.start, 0)
            self._files.append(FormFile(head, start, start + part.size))
            return
        value, before = b"".join(part.text).decode("utf-8", _ENCODED), self._fields.get(part.name)
        several = before if isinstance(before, list) else [] if before is None else [before]
        self._fields[part.name] = [*several, value] if several else value

    def _over(self) -> None:
        self._complete = True


@dataclass(frozen=True, slots=True)
class FormOutline:
    """A form without its files, as JSON, in which `stream` is a boolean as in other requests.

    Attributes:
        text: the outline.
    """

    text: bytes
    _files: tuple[FormFile, ...]
    _body: memoryview
    _boundary: bytes
    opaque = False  # a form is always looked at

    @classmethod
    def of(cls, form: Form, body: memoryview, boundary: bytes) -> FormOutline:
        """Return the outline of a form that lies in `body`; `boundary`: of the forms that are made of it."""
        fields: dict[str, object] = dict(form.fields)
        if isinstance(fields.get("stream"), str):
            fields["stream"] = fields["stream"] == _FLAGS[True]  # as the engine reads it
        return cls(json.dumps(fields).encode(), form.files, body, boundary)

    @property
    def content_type(self) -> str:
        """The type of the forms that `pieces` makes."""
        return f"{_KIND.decode()}; boundary={self._boundary.decode()}"

    def pieces(self, payload: bytes) -> Payload:
        """Return a form of the fields of a JSON object, with all the files."""
        return tuple(self._pieces(payload))

    def heads(self, value: object, size: int) -> object:
        """Return a value of the outline, in which texts stand as they are."""
        return value

    def files(self) -> Iterator[memoryview]:
        """Yield the contents of the files."""
        return (self._body[file.start : file.stop] for file in self._files)

    def _pieces(self, payload: bytes) -> Iterator[bytes | memoryview]:
        delimiter = b"--" + self._boundary
        parts = [delimiter + _field(name, text) for name, text in _texts(parse(payload))]
        for file in self._files:
            parts.append(delimiter + b"\r\n" + file.head + b"\r\n\r\n")
            yield b"".join(parts)
            yield self._body[file.start : file.stop]
            parts = [b"\r\n"]
        yield b"".join(parts) + delimiter + b"--\r\n"


def _texts(fields: object) -> Iterator[tuple[str, str]]:
    assert isinstance(fields, dict)  # the outline, whatever was set in it
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:  # as good as none for the engine
                yield name, _FLAGS[one] if isinstance(one, bool) else one if isinstance(one, str) else json.dumps(one)


def _field(name: str, text: str) -> bytes:
    """Return a part without its delimiter. What would end its name early is written as browsers do."""
    named = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return f'\r\nContent-Disposition: form-data; name="{named}"\r\n\r\n{text}\r\n'.encode("utf-8", _ENCODED)
