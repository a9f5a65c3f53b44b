"""The size of a picture, from how its file begins.

llama-server decodes all pictures of a request, with stb_image, before it looks at the size of one, and holds 3 to 6
bytes of memory for each pixel. A GIF of 35 bytes may have 18,000 times 18,000. So the pixels are counted before.
Whether something is a picture is decided as llama-server b11434 does: by its bytes, whatever its place says.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from supervisor.core.requests.media import places
from supervisor.errors import InvalidRequest, MediaTooLarge

MOST_PIXELS: Final = 1 << 27
"""Of all pictures of a request."""

MOST_HEAD: Final = 1 << 20
"""Bytes of a picture in which its size has to stand; a JPEG may have previews and profiles before it."""

_FEW: Final = 48  # bytes that tell the form, and the size but for a JPEG's
_TOP: Final = ("messages", "system", "prompt", "content", "input")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*")
_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2})  # markers after which a JPEG's size stands
_BARE: Final = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})  # markers without a length
_OLD_BMP: Final = 12
_UNSIZED: Final = (b"8BPS", b"\x53\x80\xf6\x34", b"P5", b"P6", b"#?")  # PSD, PIC, PNM, HDR
_TGA: Final = ({0, 1}, {1, 2, 3, 9, 10, 11})  # the second and the third byte, of a form without a name


def pixels(read: Callable[[int], bytes]) -> int | None:
    """Return the pixels of a picture; 0 where it is none; None where its size cannot be told.

    read: returns so many bytes from its beginning, fewer where it has no more.
    """
    head = read(_FEW)
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return _of_png(head)
    if head[:4] == b"GIF8":
        return _product("<HH", head, 6)
    if head[:2] == b"BM":
        old = head[14:18] == struct.pack("<I", _OLD_BMP)
        return _product("<HH" if old else "<ii", head, 18)
    if head[:2] == b"\xff\xd8":
        return _of_jpeg(read(MOST_HEAD))
    if head.startswith(_UNSIZED) or (len(head) > 2 and head[1] in _TGA[0] and head[2] in _TGA[1]):
        return None
    return 0


def check_pictures(found: Iterable[Callable[[int], bytes]]) -> None:
    """Refuse more pixels than a request may have. Raise MediaTooLarge; InvalidRequest for what cannot be counted.

    found: reads each of its media, as `pixels` does.
    """
    total = 0
    for read in found:
        count = pixels(read)
        if count is None:
            raise InvalidRequest(
                "The size of a picture of the request cannot be read. Send it as PNG, JPEG, GIF or BMP."
            )
        total += count
    if total > MOST_PIXELS:
        raise MediaTooLarge(
            f"The pictures of the request have {total / 1e6:,.0f} million pixels, more than {MOST_PIXELS / 1e6:,.0f}. "
            "Make them smaller, or send fewer at once."
        )


def media_texts(fields: Mapping[str, object]) -> Iterator[str]:
    """Yield the texts of a request that an engine may take for media: `data:` URLs, or base64 alone.

    Besides the places that may name a medium by its address there are raw ones, and Anthropic's sources.
    """
    for place in places(fields):
        yield place.text
    waiting = [fields[key] for key in _TOP if key in fields]
    while waiting:
        value = waiting.pop()
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [one for one in below if isinstance(one, list | dict)]
        if isinstance(value, dict):
            raw, source = value.get("multimodal_data"), value.get("source")
            found = [*(raw if isinstance(raw, list) else ()), source.get("data") if isinstance(source, dict) else None]
            yield from (one for one in found if isinstance(one, str))


def reader_of(text: str, whole: Callable[[str, int], str]) -> Callable[[int], bytes]:
    """Return what reads the medium of such a text. whole: returns so many characters of it, where it was left out."""

    def read(size: int) -> bytes:
        found = whole(text, size * 4 // 3 + 256)
        encoded = found.partition(",")[2] if found[:5].lower() == "data:" else found
        return decoded(encoded[: size * 4 // 3 + 4])[:size]  # a text that was not left out is here as a whole

    return read


def file_reader(file: memoryview) -> Callable[[int], bytes]:
    """Return what reads the medium of a form's file."""
    return lambda size: bytes(file[:size])


def decoded(encoded: str) -> bytes:
    """Return what stands in base64, up to the first character that is none, as llama-server reads it."""
    found = _BASE64.match(encoded)
    plain = found[0] if found else ""
    return base64.b64decode(plain[: len(plain) - len(plain) % 4] + _rest(plain))


def _rest(plain: str) -> str:
    """Return what is left of the last four characters, filled up; one alone tells no byte."""
    left = plain[len(plain) - len(plain) % 4 :]
    return left + "=" * (4 - len(left)) if len(left) > 1 else ""


def _product(form: str, head: bytes, at: int) -> int | None:
    if len(head) < at + struct.calcsize(form):
        return 0  # too short for any picture
    width, height = map(int, struct.unpack_from(form, head, at))
    return abs(width) * abs(height)


def _of_png(head: bytes) -> int | None:
    """Apple's tools put a chunk of four bytes before the first one."""
    at = 8 + 16 if head[12:16] == b"CgBI" and head[8:12] == b"\0\0\0\4" else 8
    return _product(">II", head, at + 8) if head[at + 4 : at + 8] == b"IHDR" else None


def _of_jpeg(head: bytes) -> int | None:
    at = 2
    while True:
        at = head.find(b"\xff", at)
        if at < 0 or at + 9 > len(head):
            return None if len(head) == MOST_HEAD else 0  # it goes on, or is broken
        marker = head[at + 1]
        if marker in _FRAMES:
            return _product(">HH", head, at + 5)
        if marker == 0xFF:
            at += 1
        elif marker in _BARE:
            at += 2
        else:
            at += 2 + int.from_bytes(head[at + 2 : at + 4])
