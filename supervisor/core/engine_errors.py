"""The engine's own error objects → ours: the same object with a stable `code` in place of the status number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_CODES = {
    "exceed_context_size_error": "context_length_exceeded",  # OpenAI's own code
    "invalid_request_error": "invalid_request",
    "not_supported_error": "not_supported_by_engine",
    "unavailable_error": "engine_busy",
    "not_found_error": "route_not_found",
}
_OTHER = "engine_error"


def translate(error: Mapping[str, Any], status: int = 500) -> tuple[int, dict[str, Any]]:
    """HTTP status and envelope for an error object of the engine.

    Args:
        error: the engine's `{"code": status, "message", "type", …}`; its further fields are kept.
        status: the status for an object that names none.
    """
    named = error.get("code")
    found = named if isinstance(named, int) and 400 <= named <= 599 else status
    kind = error.get("type", "server_error")
    message = error.get("message") or "The engine failed without a reason; its log may have one."
    code = _CODES.get(kind, _OTHER)
    return found, {"error": {"param": None, **error, "message": message, "type": kind, "code": code}}


def error_in(body: bytes) -> Mapping[str, Any]:
    """The error object of an error response; made up from its text where there is none."""
    try:
        found = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        found = None
    return found if isinstance(found, dict) else {"message": body.decode("utf-8", "replace")[:500]}
