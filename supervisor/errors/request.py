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


class RouteNotFound(RequestError):
    """There is no such path or method."""

    code = "route_not_found"
    status = 404
