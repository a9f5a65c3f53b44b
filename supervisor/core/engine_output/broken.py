"""Recognise that the device of a ready engine has failed: it was lost, or had no memory for what an answer takes.

llama-server (b11434) then gives all its requests an error, says the same in its log, and goes on as if nothing had
been. But a lost device stays lost for the process that lost it, and a back end whose allocation failed has dropped
buffers that it believes to have. So such an engine is ended, and another one takes its place.

An answer decides, never the log: that quotes what clients send, line ends and all, so anybody could write the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from supervisor.core.engine_output.failures import DEVICE_LOST, OUT_OF_MEMORY, Cause, cause_of

_SERVER_ERROR = 500  # what a client got wrong has another code
_COMPUTE = "Compute error."
_FAILED = re.compile(
    r"(?:pre_|post_)?decode\(\) failed: "
    r"(?:vk::|(?:[\w:]+ )?(?:std::bad_alloc|[Oo]ut of memory|[Ff]ailed to allocate))"
)
_LINE = re.compile(rf"(?:[\d.]+ )?(?:E )?srv\s+\w+: (?:{_FAILED.pattern}|{re.escape(_COMPUTE)})".encode())


def said_broken(error: object) -> str:
    """Return the message of the engine's error object where it says that the engine can work no more; else nothing."""
    if not isinstance(error, Mapping) or error.get("code") != _SERVER_ERROR:
        return ""
    message = error.get("message")
    failed = isinstance(message, str) and (message == _COMPUTE or _FAILED.match(message) is not None)
    return str(message) if failed else ""


def tells_of_break(line: bytes) -> bool:
    """Return whether the line of the log is the one that an engine writes beside such an answer, after the reason."""
    return (b"ailed: " in line or b"Compute error" in line) and _LINE.match(line) is not None


def cause_of_break(lines: Sequence[str]) -> Cause:
    """Return why it can work no more, by the last lines of its log and the message of its answer."""
    found = cause_of(lines)
    if found is not None and found.code in {OUT_OF_MEMORY, DEVICE_LOST}:
        return found
    return Cause(DEVICE_LOST, "The GPU failed")
