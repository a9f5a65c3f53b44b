"""The one maker of error envelopes: an error in the form of the API that was called."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from supervisor import errors as e
from supervisor.core.engine_output.failures import FINAL
from supervisor.core.routes import api_of
from supervisor.proxy.elsewhere import MOVED
from supervisor.system.requestid import current_id

_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    416: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    499: "cancelled_error",
    504: "unavailable_error",
    507: "unavailable_error",
    503: "unavailable_error",
}


def envelope(error: e.SupervisorError) -> dict[str, Any]:
    """OpenAI's error object, with a stable `code` of ours."""
    body: dict[str, Any] = {
        "message": _sayable(error.message),
        "type": _TYPES.get(error.status, "server_error"),
        "code": error.code,
        "param": error.param if error.param is None else _sayable(error.param),
    }
    if error.log_lines:
        body["log_lines"] = list(map(_sayable, error.log_lines))
    return {"error": body}


def _sayable(text: str) -> str:
    """Return the text without halves of surrogate pairs: JSON can spell them, but they have no encoding."""
    return text.encode("utf-8", "replace").decode()


_REPEATED = frozenset({408, 409, 429})
"""Statuses that client libraries repeat by themselves, beside all from 500 on."""


def may_pass(error: e.SupervisorError) -> bool:
    """Return whether the same request may succeed a little later."""
    return error.transient and error.code not in FINAL


def headers_of(error: e.SupervisorError) -> dict[str, str]:
    """Return the headers that an answer with this error has.

    `x-should-retry` is what OpenAI's client libraries obey: without it they repeat every 5xx.
    """
    match error:
        case e.Unauthorized():
            return {"www-authenticate": "Bearer"}
        case e.MethodNotAllowed():
            return {"allow": error.allow}
        case e.RangeNotSatisfiable():
            return {"content-range": f"bytes */{error.size}"}
        case e.ModelMoved() | e.NodeUnknown():
            return {MOVED: "true"}
        case e.Overloaded() | e.RateLimited():
            return {"retry-after": str(math.ceil(error.retry_after))}
        case _ if not may_pass(error) and (error.status in _REPEATED or error.status >= 499):
            return {"x-should-retry": "false"}
        case _:
            return {}


def error_response(error: e.SupervisorError, path: str) -> JSONResponse:
    """The answer for an error, in the form of the API that the path belongs to."""
    return JSONResponse(api_of(path).envelope(envelope(error), current_id()), error.status, headers_of(error))


def render_error(error: e.SupervisorError) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers for an error, for endpoints outside the framework."""
    return error.status, json.dumps(envelope(error)).encode(), headers_of(error)
