"""A picture for models that look at one: a few grey points."""

from __future__ import annotations

import struct
import zlib

_SIDE = 8


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_POINTS = b"".join(b"\0" + bytes(range(line, line + _SIDE)) for line in range(_SIDE))
PNG = b"".join((
    b"\x89PNG\r\n\x1a\n",
    _chunk(b"IHDR", struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 0, 0, 0, 0)),
    _chunk(b"IDAT", zlib.compress(_POINTS)),
    _chunk(b"IEND", b""),
))
"""The whole file."""
