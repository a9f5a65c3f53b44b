"""The ASGI application: routers, relayed endpoints, error envelopes, the guard around it all."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from supervisor import __version__
from supervisor.api import manage, openai
from supervisor.api.errors import error_response
from supervisor.api.guard import Guard
from supervisor.api.service import Service
from supervisor.auth import AccessRules
from supervisor.errors import InvalidRequest, RouteNotFound, SupervisorError


def create_app(service: Service, relayed: Mapping[str, ASGIApp], rules: AccessRules) -> ASGIApp:
    """The application. `relayed`: POST paths that are served by ASGI endpoints of the proxy."""
    app = FastAPI(title="llama-supervisor", version=__version__, description="Manages and relays to llama.cpp engines.")
    app.state.service = service
    app.router.routes.extend(Route(path, endpoint, methods=["POST"]) for path, endpoint in relayed.items())
    app.include_router(openai.router)
    app.include_router(manage.router)
    app.add_exception_handler(SupervisorError, _supervisor_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _bug)
    return Guard(app, rules)


def _supervisor_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SupervisorError)
    return error_response(error)


def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in {"body", "query"})
    return error_response(InvalidRequest(f"{where or 'body'}: {first['msg']}", param=where or None))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in {404, 405}:
        return error_response(RouteNotFound(f"There is no {request.method} {request.url.path}; see /docs."))
    return error_response(InvalidRequest(str(error.detail)))


def _bug(_request: Request, error: Exception) -> Response:
    """A bug of ours: the server logs the traceback, the client gets an envelope like any other."""
    name = type(error).__name__
    return error_response(SupervisorError(f"Internal error ({name}); `supervisor logs` has the details."))
