"""How much of a body is taken, on every path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.app import Proxied, _Dispatch, create_app
from supervisor.api.errors import render_error
from supervisor.api.services import Services
from supervisor.api.small import MOST
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.requests.access import AccessRules, RulesByAddress
from supervisor.core.routes import SERVED, asked_of
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.asked import asked_endpoint
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.naming import Naming
from supervisor.proxy.relay import Relaying, relay_endpoints
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting

RELAYED = 2 << 20
PIECE = 1 << 16
METHODS = ("POST", "PUT", "PATCH", "DELETE")


class _NoServices:
    """Whatever is asked for is not there."""

    def __getattr__(self, name: str) -> None:
        return None


def application() -> ASGIApp:
    """All routes, with no engine behind them."""
    registry, inflight = Registry((ModelEntry("m", Source.FILE, "/m.gguf"),)), Inflight(lambda: 0.0)
    pool = cast(Pool, None)
    waiting = Waiting(pool, inflight, lambda: 0.0)
    naming = Naming(registry, frozenset, lambda: None)
    relaying = Relaying(pool, registry, inflight, Bodies(RELAYED, RELAYED), render_error, ToolCalls(), waiting, naming)
    rules = AccessRules((), (), (), check_host=False, any_address=True)
    upstream = upstream_endpoint(relaying, lambda: 0)
    proxied = Proxied(relay_endpoints(relaying), asked_endpoint(relaying, upstream), upstream)
    return create_app(cast(Services, _NoServices()), proxied, lambda: RulesByAddress(rules, {}), lambda *_: None)


def endless(path: str = "") -> Iterator[bytes]:
    """A body of one JSON string, or of one file, that never ends."""
    file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    yield file if is_form(path) else b'{"model": "m", "messages": [{"content": "'
    while True:
        yield b"x" * PIECE


def is_form(path: str) -> bool:
    return path in SERVED and SERVED[path].is_form


APP = application()


async def ask(method: str, path: str, body: Iterator[bytes], *headers: tuple[bytes, bytes]) -> tuple[Any, int]:
    """Status and error of the answer, and how many bytes were taken for it."""
    sent: list[Message] = []
    taken = 0

    async def receive() -> Message:
        nonlocal taken
        piece = next(body, None)
        taken += len(piece or b"")
        assert taken < 1 << 28
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def send(message: Message) -> None:
        sent.append(message)

    kind = b"multipart/form-data; boundary=x" if method == "POST" and is_form(path) else b"application/json"
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", kind), *headers],
    }
    await APP(scope, receive, send)
    shown = json.loads(b"".join(message.get("body", b"") for message in sent) or b"{}")
    error = shown.get("error", shown)
    return (sent[0]["status"], error if isinstance(error, dict) else shown), taken


def routes() -> list[tuple[str, str]]:
    """Every path that there is, with each method whose body is read."""
    (_, schema), _ = asyncio.run(ask("GET", "/openapi.json", iter(())))
    found = {path.replace("{model}", "m").replace("{id}", "1").replace("{slot}", "0") for path in schema["paths"]}
    found |= {*SERVED, "/upstream/m/completion", "/docs", "/openapi.json", "/nowhere", "/v1/nowhere"}
    return [(method, path) for path in sorted(found) for method in METHODS]


def limit_of(method: str, path: str) -> int:
    relayed = path.startswith("/upstream/") or (method == "POST" and (path in SERVED or asked_of(path) is not None))
    return RELAYED if relayed else MOST


ROUTES = routes()


def test_the_list_of_routes_has_all_kinds() -> None:
    assert {("POST", "/api/v1/models/load"), ("POST", "/models/unload"), ("POST", "/v1/embeddings")} <= set(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_path_takes_more_than_its_kind(method: str, path: str) -> None:
    chunked = (b"transfer-encoding", b"chunked")
    (status, error), taken = asyncio.run(ask(method, path, endless(path), chunked))
    assert (status, error["code"]) == (413, "payload_too_large")
    assert taken <= limit_of(method, path) + PIECE
    declared = (b"content-length", str(limit_of(method, path) + 1).encode())
    (status, error), taken = asyncio.run(ask(method, path, endless(path), declared))
    assert (status, error["code"], taken) == (413, "payload_too_large", 0)


@pytest.mark.parametrize("path", ["/health", "/nowhere", "/v1/chat/completions"])
def test_the_body_of_a_get_is_not_read(path: str) -> None:
    chunked = (b"transfer-encoding", b"chunked")
    (status, _), taken = asyncio.run(ask("GET", path, endless(), chunked))
    assert (status != 413, taken) == (True, 0)


@pytest.mark.parametrize("path", ["/api/v1/plan", "/models/load"])
def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(path: str) -> None:
    body = b'{"model": "m", "target": [' + b"[]," * 340_000 + b"[]]}"
    length = (b"content-length", str(len(body)).encode())
    (status, error), _ = asyncio.run(ask("POST", path, iter((body,)), length))
    assert (status, error["code"]) == (413, "payload_too_large")


def test_a_small_body_of_management_is_read_as_before() -> None:
    length = (b"content-length", b"9")
    (status, error), taken = asyncio.run(ask("POST", "/api/v1/plan", iter((b'{"x": ', b"[]}")), length))
    assert (status, error["code"], error["param"], taken) == (400, "invalid_request", "target", 9)


def test_a_call_of_management_with_very_many_keys_is_not_looked_at() -> None:
    """Each key that is not known costs a fault of its own."""
    body = json.dumps({"target": "m", "options": {f"k{number}": 1 for number in range(9000)}}).encode()
    length = (b"content-length", str(len(body)).encode())
    (_, error), _ = asyncio.run(ask("POST", "/api/v1/plan", iter([body]), length))
    assert error["code"] == "payload_too_large"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_is_told_of_cookies(method: str) -> None:
    """Python may take seconds to read one of 60 KiB."""
    told: list[list[tuple[bytes, bytes]]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        told.append(scope["headers"])

    async def nothing(_: object = None) -> Message:
        raise AssertionError("nobody asks")

    headers = [(b"cookie", b'a="' + b'\\"' * 30_000 + b'"'), (b"host", b"localhost"), (b"cookie", b"c=d")]
    scope = {"type": "http", "method": method, "path": "/health", "query_string": b"", "headers": headers}
    asyncio.run(_Dispatch(cast(Any, app), cast(Any, Proxied({}, app, app)))(scope, nothing, cast(Send, nothing)))
    assert told == [[(b"host", b"localhost")]]
