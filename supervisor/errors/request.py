"""Errors that are the client's fault."""

from __future__ import annotations

from supervisor.errors.base import SupervisorError


class RequestError(SupervisorError):
    """The client's fault."""

    code = "request_error"
    status = 400


class InvalidRequest(RequestError):
    """The request is malformed."""

    code = "invalid_request"


class PayloadTooLarge(InvalidRequest):
    """The request body exceeds the limit."""

    code = "payload_too_large"
    status = 413


class EncodingNotSupported(RequestError):
    """The request body is compressed, or encoded in another way."""

    code = "encoding_not_supported"
    status = 415


class NotSupportedHere(RequestError):
    """Another program's API has this, and here nothing does it."""

    code = "not_supported"
    status = 501


class HeadersTooLarge(RequestError):
    """The request line and the headers exceed the limit, in size or number."""

    code = "headers_too_large"
    status = 431


class RequestTimeout(RequestError):
    """The request did not arrive in time."""

    code = "request_timeout"
    status = 408
    transient = True


class DeadlinePassed(RequestError):
    """The request had no engine within the time for which its client wanted to wait."""

    code = "deadline_passed"
    status = 504


class Unauthorized(RequestError):
    """The API key is missing or wrong."""

    code = "unauthorized"
    status = 401


class KeyExpired(Unauthorized):
    """The API key has expired."""

    code = "key_expired"


class Forbidden(RequestError):
    """The API key may not do this: it lacks the scope, or sees only some models."""

    code = "forbidden"
    status = 403


class RateLimited(RequestError):
    """The API key has used up its requests or tokens of this minute.

    Args:
        message: as in SupervisorError.
        retry_after: seconds after which it is worth another try.
    """

    code = "rate_limited"
    status = 429
    transient = True

    def __init__(self, message: str, *, retry_after: float = 60.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BudgetSpent(RequestError):
    """The API key has used up the tokens that it may use in all."""

    code = "budget_spent"
    status = 429


class KeyNotFound(RequestError):
    """There is no API key of this name, or it is revoked."""

    code = "key_not_found"
    status = 404


class KeyRefused(RequestError):
    """The API key cannot be added or revoked so: its name is taken, or nobody could manage keys any more."""

    code = "key_refused"
    status = 409


class HostNotAllowed(RequestError):
    """The Host header names a host that this daemon is not (DNS rebinding)."""

    code = "host_not_allowed"
    status = 403


class OriginNotAllowed(RequestError):
    """A web page of another origin tries to drive the daemon."""

    code = "origin_not_allowed"
    status = 403


class RequestNotFound(RequestError):
    """No such request is running or waiting."""

    code = "request_not_found"
    status = 404


class RecordNotFound(RequestError):
    """The history or the captured requests have no such record, or no more."""

    code = "record_not_found"
    status = 404


class CaptureIncomplete(RequestError):
    """A part of the captured request was not kept, so it cannot be sent again."""

    code = "capture_incomplete"
    status = 409


class RouteNotFound(RequestError):
    """There is no such path."""

    code = "route_not_found"
    status = 404


class MethodNotAllowed(RequestError):
    """The path has other methods than the one that was asked for. `allow`: these, as the header `Allow` has them."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, message: str, *, allow: str = "") -> None:
        super().__init__(message)
        self.allow = allow


class TimeLimit(RequestError):
    """The answer took longer than the model's `max_seconds`, and could not be ended in the middle."""

    code = "time_limit"
    status = 504


class MediaUrlRefused(InvalidRequest):
    """An address of an image, sound or video is one that the daemon does not fetch from."""

    code = "media_url_refused"


class MediaTooLarge(PayloadTooLarge):
    """What is at the address of a medium exceeds the limit, or the pictures of the request have too many pixels."""

    code = "media_too_large"


class MediaNotFetched(RequestError):
    """A medium could not be fetched from its address."""

    code = "media_not_fetched"


class TlsRequired(RequestError):
    """Plain HTTP was spoken where the daemon speaks TLS."""

    code = "tls_required"
