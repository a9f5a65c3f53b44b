"""The one table from error class to HTTP status, and the one maker of error envelopes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from supervisor import errors as e
from supervisor.core.engine_output.failures import FINAL
from supervisor.core.routes import api_of

# The first class of an error's ancestry that stands here decides.
STATUSES: Mapping[type[e.SupervisorError], int] = {
    e.ModelNotFound: 404,
    e.ModelIdTaken: 409,
    e.VariantNotFound: 404,
    e.VariantAmbiguous: 409,
    e.ModelInUse: 409,
    e.ModelFileError: 422,
    e.EstimateRefused: 422,
    e.ModelDoesNotFit: 507,
    e.ModelLoadFailed: 503,
    e.ModelError: 500,
    e.RepositoryNotFound: 404,
    e.HubTokenNeeded: 403,
    e.HubGated: 403,
    e.HubBusy: 503,
    e.HubUnreachable: 503,
    e.DiskFull: 507,
    e.HubError: 502,
    e.EngineLost: 502,
    e.EngineStreamInvalid: 502,
    e.OptionNotSupported: 400,
    e.EngineError: 503,
    e.PayloadTooLarge: 413,
    e.HeadersTooLarge: 431,
    e.RequestTimeout: 408,
    e.Unauthorized: 401,
    e.HostNotAllowed: 403,
    e.OriginNotAllowed: 403,
    e.RouteNotFound: 404,
    e.RequestNotFound: 404,
    e.RequestError: 400,
    e.QueueFull: 429,
    e.Overloaded: 503,
    e.RequestCancelled: 499,
    e.ShuttingDown: 503,
    e.ProfileInvalid: 422,
    e.ConfigError: 422,
    e.SupervisorError: 500,
}

_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    499: "cancelled_error",
    507: "unavailable_error",
    503: "unavailable_error",
}


def status_of(error: e.SupervisorError) -> int:
    """The HTTP status of an error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def envelope(error: e.SupervisorError) -> dict[str, Any]:
    """OpenAI's error object, with a stable `code` of ours."""
    body: dict[str, Any] = {
        "message": _sayable(error.message),
        "type": _TYPES.get(status_of(error), "server_error"),
        "code": error.code,
        "param": error.param if error.param is None else _sayable(error.param),
    }
    if error.log_lines:
        body["log_lines"] = list(map(_sayable, error.log_lines))
    return {"error": body}


def _sayable(text: str) -> str:
    """What a client wrote may be repeated in it; halves of surrogate pairs, which JSON can spell, have no encoding."""
    return text.encode("utf-8", "replace").decode()


_MAY_PASS = (
    *(e.Overloaded, e.RequestTimeout, e.ShuttingDown),
    *(e.ModelLoadFailed, e.HubBusy, e.HubUnreachable, e.DownloadFailed),
    *(e.EngineLost, e.EngineHung, e.EngineStreamInvalid, e.EngineStartFailed),
)
"""Errors that a repetition of the same request may not meet again."""
_REPEATED = frozenset({408, 409, 429})
"""Statuses that client libraries repeat by themselves, beside all from 500 on."""


def may_pass(error: e.SupervisorError) -> bool:
    """Whether the same request may succeed a little later."""
    final = isinstance(error, e.CrashLoop | e.ModelNotLoaded) or error.code in FINAL
    return isinstance(error, _MAY_PASS) and not final


def headers_of(error: e.SupervisorError) -> dict[str, str]:
    """What the answer's head says of an error.

    `x-should-retry` is what OpenAI's client libraries obey: without it they repeat every 5xx.
    """
    match error:
        case e.Unauthorized():
            return {"www-authenticate": "Bearer"}
        case e.Overloaded():
            return {"retry-after": str(math.ceil(error.retry_after))}
        case _ if not may_pass(error) and (status_of(error) in _REPEATED or status_of(error) >= 499):
            return {"x-should-retry": "false"}
        case _:
            return {}


def error_response(error: e.SupervisorError, path: str) -> JSONResponse:
    """The answer for an error, in the form of the API that the path belongs to."""
    return JSONResponse(api_of(path).envelope(envelope(error)), status_of(error), headers_of(error))


def render_error(error: e.SupervisorError) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers for an error, for endpoints outside the framework."""
    return status_of(error), json.dumps(envelope(error)).encode(), headers_of(error)
