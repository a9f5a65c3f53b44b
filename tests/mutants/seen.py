"""What a mark does: it writes down that a test came by. Run while `supervisor` is imported, with `FOLDER`.

`FOLDER/now` holds the number of the test that runs, in four bytes. Each line of `FOLDER/seen` is a mark, that number and
the process: whatever becomes of the process, it is written.
"""

from __future__ import annotations

import builtins
import mmap
import os
from collections.abc import Callable


def seeing(folder: str) -> Callable[[int], None]:
    """The function that marks call."""
    with open(f"{folder}/now", "rb") as file:
        now = mmap.mmap(file.fileno(), 4, access=mmap.ACCESS_READ)
    known: set[tuple[int, bytes]] = set()

    def seen(place: int) -> None:
        key = (place, now[:4])
        if key not in known:
            known.add(key)
            out = os.open(f"{folder}/seen", os.O_WRONLY | os.O_APPEND)
            os.write(out, b"%d %d %d\n" % (place, int.from_bytes(key[1], "little"), os.getpid()))
            os.close(out)

    return seen


if __name__ == "mutants-seen":
    builtins._mutants_seen = seeing(globals()["FOLDER"])  # type: ignore[attr-defined]
