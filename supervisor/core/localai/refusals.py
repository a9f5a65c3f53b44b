"""Errors as LocalAI understands them: the status of a call, and a text that begins with our code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from supervisor.core.localai.loaded import MISMATCH
from supervisor.errors import SupervisorError

MOST_TEXT: Final = 2000
"""Characters of an error; the trailer that carries it has to stay small."""

_CLIENTS_FAULT: Final = 4  # hundreds of an HTTP status
_BY_CODE: Final[Mapping[str, str]] = {
    "not_supported_by_engine": "UNIMPLEMENTED",
    "model_not_loaded": "FAILED_PRECONDITION",
    "model_not_found": "FAILED_PRECONDITION",  # the daemon has forgotten it; LocalAI loads it anew
    "unauthorized": "INTERNAL",  # the daemon's key, not the client's
    "key_expired": "INTERNAL",
    "forbidden": "INTERNAL",
    **dict.fromkeys(("daemon_unreachable", "daemon_unproven", "daemon_error", "shutting_down"), "UNAVAILABLE"),
    **dict.fromkeys(("overloaded", "queue_full", "bodies_full", "too_many_connections"), "RESOURCE_EXHAUSTED"),
    **dict.fromkeys(("rate_limited", "budget_spent"), "RESOURCE_EXHAUSTED"),
    **dict.fromkeys(("does_not_fit", "out_of_memory", "payload_too_large"), "RESOURCE_EXHAUSTED"),
}


def status_of(error: SupervisorError) -> str:
    """Return the name of the gRPC status."""
    if MISMATCH in error.message:
        return "NOT_FOUND"
    found = _BY_CODE.get(error.code)
    if found is not None:
        return found
    status = _statuses().get(error.code, error.status)
    return "INVALID_ARGUMENT" if status // 100 == _CLIENTS_FAULT else "INTERNAL"


@cache
def _statuses() -> Mapping[str, int]:
    """Return the HTTP status of every code; an error that was told in the middle of an answer has only its code."""
    found: dict[str, int] = {}
    kinds = [SupervisorError]
    while kinds:
        kind = kinds.pop()
        found.setdefault(kind.code, kind.status)
        kinds += kind.__subclasses__()
    return found


def text_of(error: SupervisorError) -> str:
    """Return the code, the message and the last telling line of a child's output."""
    last = f"\n{error.log_lines[-1]}" if error.log_lines else ""
    return f"{error.code}: {error.message}{last}"[:MOST_TEXT]
