"""The most expensive headers that the reader's limits allow: what do they cost?

    python -m tests.fuzz.extremes

Prints CPU time and memory for each as JSON.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

from supervisor.core.gguf import read_header
from supervisor.errors import GgufError
from tests.support.gguf_bytes import ARRAY, STRING, array, header, pair, tensor, text

_MANY = 65_536  # tensors or pairs


def extremes() -> Iterator[tuple[str, bytes]]:
    """Name and header."""
    infos = b"".join(tensor(f"{number:x}", [1, 1, 1, 0], 0, 0) for number in range(_MANY))
    yield "as many tensors as allowed", header(tensors=_MANY) + infos
    infos = b"".join(tensor(f"{number:063x}", [2**40 + number, 0, 2**10, 1], 99, 0) for number in range(_MANY))
    yield "as many tensors as allowed, large", header(tensors=_MANY) + infos
    yield "as many pairs as allowed", header(*(pair(f"{number:x}", 10, 2**63) for number in range(_MANY)))
    yield "as many texts as allowed", header(*(pair(f"{number:x}", STRING, "ü" * 30) for number in range(_MANY)))
    words = (array(f"{number}", STRING, [f"{number} {place}" for place in range(4096)]) for number in range(64))
    yield "as many words as allowed", header(*words)
    yield "as many numbers as allowed", header(*(array(f"{n}", 12, [0.1 * n] * 4096) for n in range(64)))
    yield "as much text as allowed, not UTF-8", header(*(_noise(number) for number in range(4)))
    strings = text("tokens") + struct.pack("<IIQ", ARRAY, STRING, 1 << 22)
    yield "as many strings as allowed", header(strings + bytes(8 << 22), count=1)
    yield "strings without an end", header(strings + bytes((8 << 22) - 8) + b"\xff" * 8, count=1)


def _noise(number: int) -> bytes:
    """Half of it becomes four times as long: one character outside of the basic plane, and bytes that are none."""
    content = "🦙".encode() + b"\xff" * ((1 << 20) - 9)
    return text(f"{number}") + struct.pack("<I", STRING) + text(content)


def cost(data: bytes) -> tuple[float, float]:
    """Milliseconds of CPU time, and the most megabytes held."""
    begun = time.thread_time()
    _read(data)
    spent = (time.thread_time() - begun) * 1000
    tracemalloc.start()
    try:
        _read(data)
        return spent, tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def _read(data: bytes) -> None:
    with suppress(GgufError):
        read_header(io.BytesIO(data), len(data))


def main() -> int:
    found = {name: cost(data) for name, data in extremes()}
    table = {name: f"{ms:.0f} ms, {mb:.1f} MB" for name, (ms, mb) in found.items()}
    print(json.dumps(table, indent=1))  # noqa: T201 - a command of its own
    return 0


if __name__ == "__main__":
    sys.exit(main())
