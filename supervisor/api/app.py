"""The ASGI application: routers, relayed endpoints, error envelopes, the guard around it all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor import __version__
from supervisor.api import (
    captures,
    clusters,
    dashboard,
    engines,
    files,
    front,
    history,
    inflight,
    keys,
    lmstudio,
    manage,
    metrics,
    ollama,
    openai,
    pages,
    peers,
    versions,
    workers,
)
from supervisor.api.errors import error_response
from supervisor.api.guard import Admit, Guard
from supervisor.api.schema import Documented
from supervisor.api.services import Services
from supervisor.api.small import SmallBodies
from supervisor.config.faults import option_fault
from supervisor.core.requests.access import RulesByAddress
from supervisor.core.requests.elsewhere import ours_for
from supervisor.core.routes import SERVED, UPSTREAM, asked_of
from supervisor.errors import EncodingNotSupported, InvalidRequest, MethodNotAllowed, RouteNotFound, SupervisorError
from supervisor.proxy.asgi import AS_HEAD
from supervisor.system.refusal import refused

_log = structlog.get_logger()

_PLAIN = frozenset({b"", b"identity"})  # codings of a body that are none
_ROUTERS = tuple(
    one.router
    for one in (
        *(
            openai,
            manage,
            inflight,
            history,
            captures,
            metrics,
            keys,
            peers,
            files,
            engines,
            workers,
            clusters,
            versions,
        ),
        *(pages, dashboard, front, ollama, lmstudio),
    )
)
_MOST_FIELDS = 256  # of a query; 30,000, which a head has room for, take 50 ms to be read


@dataclass(frozen=True)
class Proxied:
    """The ASGI endpoints of the proxy.

    relayed: by path, for POST. asked: for paths whose model stands in the query. upstream: for all below /upstream/.
    """

    relayed: Mapping[str, ASGIApp]
    asked: ASGIApp
    upstream: ASGIApp


def create_app(services: Services, proxied: Proxied, rules: Callable[[], RulesByAddress], admit: Admit) -> Guard:
    """The application. `rules`: who may use it, asked for every request. `admit`: by the key of the request."""
    return Guard(_Dispatch(framework(services, proxied.relayed), proxied), rules, admit)


def framework(services: Services, relayed: Mapping[str, ASGIApp] = MappingProxyType({})) -> FastAPI:
    """Return the part of the application that FastAPI serves: all but the relayed paths.

    relayed: these, for requests that are sent again.
    """
    about = "Manages and relays to llama.cpp engines."
    app = Documented(_ROUTERS, title="llama-supervisor", version=__version__, description=about)
    app.state.services, app.state.replays = services, relayed
    app.add_exception_handler(SupervisorError, _supervisor_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _left)
    app.add_exception_handler(OSError, _system_error)
    app.add_exception_handler(Exception, _bug)
    return app


class _Dispatch:
    """Takes the relayed paths past the framework: its routing and middleware cost each of their requests 0.1 ms.

    HEAD is answered as GET, but where that changes something; the server leaves the body out.
    """

    def __init__(self, app: ASGIApp, proxied: Proxied) -> None:
        self._app = without_cookies(SmallBodies(app))
        self._asked = ServerErrorMiddleware(proxied.asked, _bug)
        self._upstream = ServerErrorMiddleware(proxied.upstream, _bug)
        self._relayed = {path: ServerErrorMiddleware(one, _bug) for path, one in proxied.relayed.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method")
        if method == "HEAD":
            scope = {**scope, "method": "GET", AS_HEAD: True}
        fault = _fault(scope)
        if fault is not None:
            await error_response(fault, scope["path"])(scope, receive, send)
            return
        path = scope["path"]
        if path.startswith(UPSTREAM):
            await self._upstream(scope, receive, send)
            return
        plain = path.rstrip("/") or "/"
        scope = scope if plain == path else {**scope, "path": plain}
        await self._of(scope["method"], plain)(scope, receive, send)

    def _of(self, method: str, path: str) -> ASGIApp:
        """Return what serves a path that has no slash at its end."""
        relayed = self._relayed.get(path) if method == "POST" else None
        if relayed is not None:
            return relayed
        row = asked_of(path)
        return self._asked if row is not None and method in row.summary else self._app


def without_cookies(app: ASGIApp) -> ASGIApp:
    """Return `app`, which is told of no cookies: it needs none, and Python takes quadratic time to read some."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
        await app({**scope, "headers": headers}, receive, send)

    return serve


def _fault(scope: Scope) -> SupervisorError | None:
    """Return what makes a request one that nobody reads, whatever its path is."""
    if scope.get("query_string", b"").count(b"&") >= _MOST_FIELDS:
        return InvalidRequest(f"The query of the address has more than {_MOST_FIELDS} fields.")
    if scope["method"] == "GET" and _is_handshake(scope):
        return RouteNotFound("There are no websockets: llama-server has none. Ask with `stream: true` for events.")
    codings = [value for name, value in scope["headers"] if name == b"content-encoding"]
    if all(one.strip().lower() in _PLAIN for one in codings):
        return None
    return EncodingNotSupported("The request body is compressed; send it as it is, without Content-Encoding.")


def _is_handshake(scope: Scope) -> bool:
    """Return whether a client wants to go on with a websocket."""
    return any(name == b"upgrade" and value.strip().lower() == b"websocket" for name, value in scope["headers"])


def _supervisor_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SupervisorError)
    return _answer(request, error)


def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _answer(request, InvalidRequest(f"The request body is not valid JSON: {first['ctx']['error']}."))
    where = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path"})
    return _answer(request, InvalidRequest(f"{where or 'body'}: {_told(first)}", param=where or None))


def _told(fault: ErrorDetails) -> str:
    """Say what is wrong, in words for people who do not know how it was found."""
    if "options" in fault["loc"][:-1]:
        return option_fault(fault, fault["loc"].index("options") + 1)
    if fault["type"] == "extra_forbidden":
        return "unknown key; docs/rest.md lists them"
    if fault["type"] == "model_attributes_type":
        return "must be a JSON object; send it with `Content-Type: application/json`"
    if fault["type"] == "missing":
        return "is missing"
    message = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return message[:1].lower() + message[1:]


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in {404, 405}:
        return _answer(request, _no_such(request))
    return _answer(request, InvalidRequest(str(error.detail)))


def _no_such(request: Request) -> SupervisorError:
    """Say what there is in the place of a path or method that is not there."""
    path = request.scope["path"]
    what, methods = f"There is no {request.method} {path}.", ", ".join(sorted(_methods(request)))
    if not methods:
        return RouteNotFound(f"{what} {ours_for(path) or 'See /docs.'}")
    return MethodNotAllowed(f"{what} There is {methods} {path}.", allow=methods)


def _methods(request: Request) -> set[str]:
    """Return the methods that a path has: relayed, asked of an engine, or ours."""
    path, row = request.scope["path"], asked_of(request.scope["path"])
    routes = [route for router in (request.app, *_ROUTERS) for route in router.routes if isinstance(route, Route)]
    ours = {
        method
        for route in routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    found = ours | ({"POST"} if path in SERVED else set()) | set(row.summary if row is not None else ())
    return found | ({"HEAD"} if "GET" in found else set())


def _left(_request: Request, _error: Exception) -> Response:
    """Nobody reads this."""
    return Response(status_code=499)


def _system_error(request: Request, error: Exception) -> Response:
    """A full disk, or a folder that cannot be written to, is no bug of ours. Raise anything else."""
    assert isinstance(error, OSError)
    told = refused(error)
    if told is None:
        raise error
    _log.warning("system_refused", reason=str(error))
    return _answer(request, told)


def _bug(request: Request, error: Exception) -> Response:
    """A bug of ours: the server logs the traceback, the client gets an envelope like any other."""
    name = type(error).__name__
    return _answer(request, SupervisorError(f"Internal error ({name}); `supervisor logs` has the details."))


def _answer(request: Request, error: SupervisorError) -> Response:
    return error_response(error, request.scope["path"])
