"""Read the errors of servers that are not llama-server: each says them in a form of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from supervisor.core.text.foreignjson import NotJson, parse

_KINDS = {404: "not_found_error", 429: "unavailable_error", 501: "not_supported_error", 503: "unavailable_error"}


def foreign_error(body: bytes, status: int) -> Mapping[str, object]:
    """Return the error object of any server's error response, with llama-server's type for its status.

    Servers say it as `{"error": {…}}`, `{"error": text}`, `{"detail": …}`, `{"message": text}`, or as plain text.
    """
    found: object = None
    with suppress(NotJson):
        found = parse(body)
    said = (
        next((found[name] for name in ("error", "detail", "message") if found.get(name)), found)
        if isinstance(found, dict)
        else found
    )
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    given = {name: value for name, value in said.items() if value is not None} if isinstance(said, dict) else {}
    message = given.get("message", said if isinstance(said, str) else body.decode("utf-8", "replace").strip()[:500])
    return {"type": kind, **given, "message": message, "code": status}
