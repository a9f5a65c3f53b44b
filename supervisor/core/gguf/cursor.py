"""Read the numbers and strings of a GGUF header, forward and in blocks, within a bound on what is read and kept."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO, Final

from supervisor.errors import GgufError

MAX_HEADER: Final = 256 << 20
"""The longest header that is read: ten times what the largest vocabulary known needs."""

BLOCK: Final = 1 << 18
"""Bytes that are read at once."""

STRING: Final = 8
ARRAY: Final = 9
U32: Final = 4
_U64, _I64 = 10, 11
_SCALARS = {
    0: ("u8", "B"),
    1: ("i8", "b"),
    2: ("u16", "H"),
    3: ("i16", "h"),
    4: ("u32", "I"),
    5: ("i32", "i"),
    6: ("f32", "f"),
    7: ("bool", "?"),
    10: ("u64", "Q"),
    11: ("i64", "q"),
    12: ("f64", "d"),
}
TYPE_NAMES: Final = {kind: name for kind, (name, _) in _SCALARS.items()} | {STRING: "string", ARRAY: "array"}
_SIGNS = {"little": "<", "big": ">"}
_FORMS = {
    order: {kind: struct.Struct(sign + letter) for kind, (_, letter) in _SCALARS.items()}
    for order, sign in _SIGNS.items()
}
_LENGTH = 8  # bytes of a string's length

_MAX_STRINGS = 1 << 22  # that are walked over
_MAX_TEXT = 4 << 20  # bytes of everything that is kept as text
_MAX_ITEMS = 1 << 18  # of all arrays that are kept


class Cursor:
    """A place in the header of a stream that may lie.

    Args:
        expect: told again and again how far the array that is walked over is likely to go, from the stream's beginning;
            what has been seen of it says so.

    Attributes:
        offset: from the start of the header.
        byte_order: "little" until somebody knows better.
    """

    def __init__(self, stream: BinaryIO, size: int | None, expect: Callable[[int], None] = lambda _: None) -> None:
        self.offset = 0
        self._expect = expect
        self._stream = stream
        self._start = stream.tell()
        self._end = MAX_HEADER if size is None else min(size, MAX_HEADER)
        self._block = b""
        self._block_start = 0
        self._strings_left = _MAX_STRINGS
        self._text_left = _MAX_TEXT
        self._items_left = _MAX_ITEMS
        self.set_byte_order("little")

    def set_byte_order(self, order: str) -> None:
        self.byte_order = order
        self._forms = _FORMS[order]

    @property
    def left(self) -> int:
        """Bytes that may still be read: of the file, or of the longest header that is accepted."""
        return self._end - self.offset

    def error(self, reason: str) -> GgufError:
        return GgufError(reason, offset=self.offset)

    def take(self, length: int, what: str) -> bytes:
        """Return the next `length` bytes."""
        start = self._locate(length, what)
        self.offset += length
        return self._block[start : start + length]

    def utf8(self, length: int, what: str) -> str:
        """Return the next `length` bytes as text; they must be UTF-8."""
        start = self.offset
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            raise GgufError(f"a {what} is not UTF-8", offset=start) from None

    def u32(self, what: str) -> int:
        return int(self.scalar(U32, what))

    def u64(self, what: str) -> int:
        return int(self.scalar(_U64, what))

    def i64(self, what: str) -> int:
        return int(self.scalar(_I64, what))

    def scalar(self, kind: int, what: str) -> bool | int | float:
        """Return the next number of this type."""
        form = self._forms[kind]
        start = self._locate(form.size, what)
        self.offset += form.size
        value: bool | int | float = form.unpack_from(self._block, start)[0]
        return value

    def scalars(self, kind: int, count: int, what: str) -> tuple[bool | int | float, ...]:
        """Return the next `count` numbers of this type."""
        form = f"{_SIGNS[self.byte_order]}{count}{_SCALARS[kind][1]}"
        return struct.unpack(form, self.take(self.item_size(kind) * count, what))

    def item_size(self, kind: int) -> int:
        """Return the bytes of a value of this type; for a string, the least that it can have."""
        return _LENGTH if kind == STRING else self._forms[kind].size

    def skip(self, length: int, what: str) -> None:
        if length > self.left:
            raise self._too_long(length, what)
        self.offset += length

    def skip_strings(self, count: int, what: str) -> None:
        """Walk over `count` strings. This is the one loop here that has to be fast."""
        if count > self._strings_left:
            raise self.error(f"{what}: {count} strings are more than a header may have")
        self._strings_left -= count
        unpack = self._forms[_U64].unpack_from
        start, total = self.offset, count
        while count:
            at = self._locate(_LENGTH, what)
            block, walked = self._block, 0
            try:
                for walked in range(count):  # noqa: B007 - how many were walked over when the block ended
                    at += _LENGTH + unpack(block, at)[0]
                walked = count
            except (struct.error, OverflowError):  # the next length is not in this block
                pass
            count -= walked
            self.skip(self._block_start + at - self.offset, what)
            if count < total:
                self._expect(self._start + self.offset + count * (self.offset - start) // (total - count))

    def end(self) -> None:
        """Make sure that the bytes skipped last are there."""
        if self.offset > self._block_start + len(self._block):
            self.offset -= 1
            self.take(1, "end of the header")

    def afford_text(self, length: int) -> bool:
        """Return whether `length` bytes more may be kept as text; if so, they are counted."""
        if length > self._text_left:
            return False
        self._text_left -= length
        return True

    def afford_items(self, count: int) -> bool:
        """Return whether `count` items more may be kept in arrays; if so, they are counted."""
        if count > self._items_left:
            return False
        self._items_left -= count
        return True

    def _locate(self, length: int, what: str) -> int:
        """Return the offset in the block of the next `length` bytes; read on if they are not all in it."""
        start = self.offset - self._block_start
        if start + length > len(self._block):
            if length > self.left:
                raise self._too_long(length, what)
            self._block = self._read_on(start, length, what)
            self._block_start, start = self.offset, 0
        return start

    def _read_on(self, start: int, length: int, what: str) -> bytes:
        rest = self._block[start:]
        if start > len(self._block):
            self._stream.seek(self._start + self.offset)
        wanted = max(length, min(BLOCK, self.left))
        pieces, have = [rest], len(rest)
        while have < length:
            piece = self._stream.read(wanted - have)
            if not piece:
                raise self.error(f"{what}: {length} bytes needed, the file ends after {have}: cut off or damaged")
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)

    def _too_long(self, length: int, what: str) -> GgufError:
        return self.error(f"{what}: {length} bytes needed, {self.left} left: cut off or damaged")
