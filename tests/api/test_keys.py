"""Where keys are set, nothing but reading /health is answered without one: every route, every method, real sockets."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from supervisor.api.guard import Guard
from supervisor.core.requests.access import AccessRules, RulesByAddress
from supervisor.core.routes import SERVED
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.patience import PATIENCE
from tests.support.routes import asked_paths, code_of, served_routes

KEY = "a-key-for-this-test"
PAGE = "http://localhost:3000"
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "M-SEARCH")
ELSEWHERE = ("/", "/upstream/demo/x", "/upstream/demo/v1/messages", "/upstream/", "/health/", "/nowhere", "//health")
OPEN = {"/health": 200, "/ui": 200, "/ui/name": 404}
ANTHROPIC = ("/v1/messages", "/v1/messages/count_tokens", "/upstream/demo/v1/messages")


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon with a key. No engine is needed to turn somebody away."""
    settings = {"server": {"allowed_origins": [PAGE]}}
    with (
        scratch_home() as home,
        running_daemon(home, Path("/nonexistent"), settings, env={"SUPERVISOR_API_KEY": KEY}) as running,
    ):
        yield running


def paths() -> list[str]:
    """Every path the program has, with some that it has not."""
    served = [PARAMETER.sub(r"\1", route.path) for route in served_routes()]
    assert {"/health", "/api/v1/status", "/models", "/unload"} <= set(served)
    return sorted({*served, *SERVED, *asked_paths(), *ELSEWHERE})


@pytest.mark.parametrize("path", paths())
def test_every_method_of_every_path_needs_the_key(daemon: RunningDaemon, path: str) -> None:
    for method in METHODS:
        answer = daemon.http.request(method, path, json={"model": "demo"} if method in {"POST", "PUT"} else None)
        if path in OPEN and method in {"GET", "HEAD"}:
            assert answer.status_code == OPEN[path]
            continue
        assert (answer.status_code, answer.headers.get("www-authenticate")) == (401, "Bearer"), (method, path)
        if method != "HEAD":
            assert code_of(answer) == "unauthorized"


@pytest.mark.parametrize("path", ANTHROPIC)
def test_an_error_of_the_guard_has_the_form_of_the_path_s_api(daemon: RunningDaemon, path: str) -> None:
    for headers, status, kind in (
        ({}, 401, "authentication_error"),
        ({"origin": "https://evil.example"}, 403, "permission_error"),
    ):
        answer = daemon.http.post(path, json={}, headers=headers)
        assert (answer.status_code, answer.json()["type"], answer.json()["error"]["type"]) == (status, "error", kind)


def test_errors_of_the_framework_have_the_form_of_the_path_s_api(daemon: RunningDaemon) -> None:
    answer = daemon.http.get("/v1/messages", headers={"x-api-key": KEY})
    assert (answer.status_code, answer.json()["type"], answer.json()["error"]["type"]) == (
        405,
        "error",
        "invalid_request_error",
    )


def preflight(origin: str = PAGE) -> dict[str, str]:
    return {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}


@pytest.mark.parametrize("path", paths())
def test_a_preflight_is_answered_by_the_guard_alone(daemon: RunningDaemon, path: str) -> None:
    answer = daemon.http.options(path, headers=preflight())
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-headers"] == "x-api-key"
    assert daemon.http.options(path, headers=preflight("https://evil.example")).status_code == 403
    keyed = {"x-api-key": KEY}
    assert daemon.http.options(path, headers=preflight() | keyed).status_code == 204  # with a key too


def test_an_allowed_page_can_read_that_its_key_is_wrong(daemon: RunningDaemon) -> None:
    answer = daemon.http.get("/v1/models", headers={"origin": PAGE, "x-api-key": "another"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, PAGE)


def test_options_wake_no_model_and_their_body_is_not_awaited(daemon: RunningDaemon) -> None:
    address = daemon.url.removeprefix("http://").split(":")
    for headers in ("", f"Origin: {PAGE}\r\nAccess-Control-Request-Method: POST\r\n"):
        with socket.create_connection((address[0], int(address[1])), timeout=PATIENCE) as client:
            head = f"OPTIONS /upstream/demo/x HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: 268435456\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(65536).split(b" ")[1] in {b"204", b"401"}
    keyed = {"x-api-key": KEY}
    models = daemon.http.get("/api/v1/models", headers=keyed).json()["models"]
    assert [model["state"] for model in models] == ["unloaded"] * len(models)
    assert daemon.http.get("/api/v1/requests", headers=keyed).json() == {"requests": []}


def test_a_websocket_gets_no_further_than_the_guard(daemon: RunningDaemon) -> None:
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "eA==",
    }
    assert daemon.http.get("/api/v1/events", headers=upgrade).status_code == 401
    sent: list[Message] = []

    async def unreachable(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("reached")

    async def receive() -> Message:
        raise AssertionError("read")

    async def send(message: Message) -> None:
        sent.append(message)

    guard = Guard(unreachable, lambda: RulesByAddress(AccessRules(), {}), lambda *_: None)
    for kind in ("websocket", "another"):
        asyncio.run(guard({"type": kind, "path": "/v1/models", "headers": []}, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
