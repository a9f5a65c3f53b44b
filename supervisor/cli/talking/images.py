"""Images for a message, read from files."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

from supervisor.cli.client import Json
from supervisor.errors import UsageError

MOST_BYTES = 32 << 20

_KINDS: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}


def image_part(name: str) -> Json:
    """Return the image in a file as a part of a message's content.

    Raises UsageError for a file that cannot be read, is larger than MOST_BYTES, or is no image that engines take.
    """
    path = Path(os.path.expanduser(name))
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.", param="image") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{name} is larger than {MOST_BYTES >> 20} MiB; make the image smaller.", param="image")
    kind = next((kind for begin, kind in _KINDS.items() if data.startswith(begin)), None)
    if kind is None:
        raise UsageError(f"{name} is no PNG, JPEG, GIF or BMP; convert it first.", param="image")
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}
