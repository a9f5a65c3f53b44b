"""Recognise that the device of a ready engine has failed: it was lost, or had no memory for what an answer takes.

llama-server (b11434) then gives all its requests an error, says the same in its log, and goes on as if nothing had
been. But a lost device stays lost for the process that lost it, and a back end whose allocation failed has dropped
buffers that it believes to have. So such an engine is ended, and another one takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from supervisor.core.engine_output.failures import DEVICE_LOST, OUT_OF_MEMORY, Cause, cause_of

_WORK = r"(?:pre_|post_)?decode\(\) failed: "
_MEMORY = re.compile(r"[Oo]ut of memory|OutOf(?:Device|Host)Memory|bad_alloc|[Ff]ailed to allocate")
_LOST = re.compile(r"vk::|DeviceLost")
_COMPUTE = "Compute error."
_LINE = re.compile(rf"(?:[\d.]+ )?(?:E )?srv\s+\w+: (?P<said>{_WORK}.*|{re.escape(_COMPUTE)})".encode())


def is_broken(message: object) -> bool:
    """Return whether an engine that answers with this error can work no more."""
    if not isinstance(message, str):
        return False
    at_work = re.match(_WORK, message) is not None
    return message == _COMPUTE or (at_work and bool(_MEMORY.search(message) or _LOST.search(message)))


def says_broken(line: bytes) -> bool:
    """Return whether a ready engine says in this line of its log that it can work no more."""
    found = _LINE.match(line) if b"ailed: " in line or b"Compute error" in line else None
    return found is not None and is_broken(found["said"].decode("utf-8", "replace"))


def cause_of_break(lines: Sequence[str]) -> Cause:
    """Return why it can work no more, by the last lines of its log."""
    found = cause_of(lines)
    if found is not None and found.code in {OUT_OF_MEMORY, DEVICE_LOST}:
        return found
    return Cause(DEVICE_LOST, "The GPU failed")
