"""Tell from the beginning of a file what kind of GGUF it is: a model, or a file that only accompanies one.

Writers put the architecture and the kind before the long vocabulary, so that a few KiB tell. It promises nothing of the
rest of the file: `core/gguf` reads that.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

PEEK: Final = 1 << 16
"""Bytes of a file's beginning to be given; fewer where the file is shorter."""

_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_MAX_KEYS = 4096
_ARCHITECTURE, _TYPE = "general.architecture", "general.type"
_PROJECTOR = "clip"


class FileKind(enum.Enum):
    """The kind of a file, by its content."""

    MODEL = "model"  # or something that nobody knows better
    PROJECTOR = "projector"
    ADAPTER = "adapter"
    OTHER = "other"  # an imatrix table and the like
    NO_GGUF = "no GGUF"


_TYPES = {"adapter": FileKind.ADAPTER, "mmproj": FileKind.PROJECTOR, "imatrix": FileKind.OTHER}


def kind_of_file(head: bytes) -> FileKind:
    """Return the kind of a file, from its first bytes.

    Never raises: a damaged file counts as a model, whose load says more.
    """
    if head[:4] != b"GGUF":
        return FileKind.NO_GGUF
    told = _texts(head)
    if told.get(_ARCHITECTURE) == _PROJECTOR:
        return FileKind.PROJECTOR
    return _TYPES.get(told.get(_TYPE, ""), FileKind.MODEL)


def _texts(head: bytes) -> dict[str, str]:
    """Return the texts up to the first array, or the end of what was given."""
    order = "<" if head[4:6] != b"\0\0" else ">"
    found: dict[str, str] = {}
    try:
        (count,) = struct.unpack_from(f"{order}Q", head, 16)
        place = 24
        for _ in range(min(count, _MAX_KEYS)):
            key, place = _text(head, place, order)
            (kind,) = struct.unpack_from(f"{order}I", head, place)
            place += 4
            if kind == _STRING:
                found[key], place = _text(head, place, order)
            elif kind == _ARRAY:
                break
            else:
                place += _SCALARS[kind]
    except (struct.error, KeyError):  # cut off, or none of the kinds that there are
        return found
    return found


def _text(head: bytes, place: int, order: str) -> tuple[str, int]:
    (length,) = struct.unpack_from(f"{order}Q", head, place)
    end = place + 8 + length
    if end > len(head):
        raise struct.error("beyond what was given")
    return head[place + 8 : end].decode("utf-8", "replace"), end
