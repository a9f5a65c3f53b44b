"""/docs needs nothing from elsewhere, its schema knows every path, and no page can have a browser change anything."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message

from supervisor.api.pages import style, viewer
from supervisor.api.peers import CHANGES
from supervisor.core.routes import SERVED
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.routes import served_routes

FIREFOX = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"}
VIEWER = files("supervisor.api") / "viewer"
LOOKS_ONLY = {
    *("/openapi.json", "/docs", "/docs/start.js", "/docs/viewer.js", "/docs/viewer.css"),
    *("/", "/ready", "/health", "/v1/models", "/v1/models/{model:path}", "/models", "/models/sse", "/running"),
    *("/api/v1/status", "/api/v1/toolcalls", "/api/v1/models", "/api/v1/logs", "/api/v1/requests", "/api/v1/events"),
    "/api/v1/workers",
    "/api/v1/cluster",
    "/api/v1/cluster/config",
    "/api/v1/cluster/nodes",
    "/api/v1/cluster/config/history",
    "/api/v1/keys",
    *("/metrics", "/api/v1/history", "/api/v1/history/summary", "/api/v1/history/loads", "/api/v1/history/export"),
    *("/api/v1/history/{id}", "/api/v1/captures", "/api/v1/captures/{id}", "/api/v1/captures/export"),
    *("/ui", "/ui/{name}", "/api/v1/memory", "/api/v1/config", "/api/v1/engines"),
    *("/api/version", "/api/tags", "/api/ps", "/api/blobs/{digest}"),
    *("/api/v0/models", "/api/v0/models/{model:path}"),
    *("/api/v1/disk", "/api/v1/devices", "/api/v1/logs/level"),
}
"""What GET does not change anything, but what is known of the machine."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon. No engine is needed."""
    with scratch_home() as home, running_daemon(home, Path("/nonexistent")) as running:
        yield running


def test_the_page_and_all_it_needs_come_from_the_daemon(daemon: RunningDaemon) -> None:
    page = daemon.http.get("/docs", headers={**FIREFOX, "sec-fetch-site": "none"})
    needed = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert {"/docs/viewer.js", "/docs/viewer.css", "/docs/start.js"} < set(needed)
    assert "//" not in page.text  # nothing from another host
    assert re.findall(r"<script(?! src=)|<style| on\w+=", page.text) == []  # nothing that its policy forbids
    for path in (*needed, "/openapi.json"):
        if path != "data:,":
            answer = daemon.http.get(path, headers={**FIREFOX, "sec-fetch-site": "same-origin"})
            assert answer.status_code == 200
            assert len(answer.content) > 50
    assert "petstore" not in daemon.http.get("/docs/start.js").text


@pytest.mark.parametrize("path", ["/docs", "/docs/start.js", "/docs/viewer.js", "/docs/viewer.css"])
def test_the_page_may_load_and_run_only_what_is_the_daemon_s(daemon: RunningDaemon, path: str) -> None:
    answer = daemon.http.get(path)
    policy = dict(one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("file", [viewer, style])
def test_a_client_that_does_not_read_is_sent_a_piece_at_a_time(file: Callable[[], Awaitable[Response]]) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def serve() -> None:
        never = asyncio.Event()

        async def receive() -> Message:
            await never.wait()
            raise AssertionError("the client neither asks nor leaves")

        await (await file())({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)

    asyncio.run(serve())
    pieces = [message["body"] for message in sent[1:]]
    assert max(map(len, pieces)) <= 1 << 16
    assert dict(sent[0]["headers"])[b"content-length"] == str(sum(map(len, pieces))).encode()


def test_the_viewer_is_the_one_that_its_page_names() -> None:
    """And its licence is with it."""
    sums = re.findall(
        r"^\| (\S+) \| ([0-9a-f]{64}) \|", (VIEWER / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    packed = {one.name for one in VIEWER.iterdir() if one.name.endswith(".gz")}
    assert {name for name, _ in sums} == packed
    for name, expected in sums:
        assert hashlib.sha256(gzip.decompress((VIEWER / name).read_bytes())).hexdigest() == expected
    assert {"LICENSE", "NOTICE"} < {one.name for one in VIEWER.iterdir()}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_schema_has_every_path_and_method(daemon: RunningDaemon) -> None:
    schema = daemon.http.get("/openapi.json").json()
    shown = {(path, method.upper()) for path, operations in schema["paths"].items() for method in operations}
    served = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in served_routes()
        if route.include_in_schema
        for method in route.methods or ()
    }
    assert {(path, "POST") for path in SERVED} | served <= shown
    assert ("/upstream/{model}/{path}", "GET") in shown


def test_the_schema_s_references_lead_somewhere(daemon: RunningDaemon) -> None:
    schema = daemon.http.get("/openapi.json").json()
    for reference in references(schema):
        found = schema
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def test_the_schema_says_errors_as_they_are(daemon: RunningDaemon) -> None:
    schema = daemon.http.get("/openapi.json").json()
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            said = operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"]
            assert said.endswith("/AnthropicError") == path.startswith(("/v1/messages", "/messages"))


# -- what a page can make a browser send


def refuses_browsers(route: Route) -> bool:
    return CHANGES in getattr(route, "dependencies", ())


def test_every_get_changes_nothing_or_is_not_for_browsers() -> None:
    gets = {route.path: route for route in served_routes() if {"GET", "HEAD"} & (route.methods or set())}
    assert {path for path, route in gets.items() if not refuses_browsers(route)} == LOOKS_ONLY
    assert {path for path, route in gets.items() if refuses_browsers(route)} == {"/unload"}


def test_head_changes_nothing(daemon: RunningDaemon) -> None:
    """Whoever asks: a program that only looks whether a path is there."""
    for route in served_routes():
        if refuses_browsers(route):
            assert daemon.http.head(route.path).status_code == 405
            assert daemon.http.get(route.path).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("more", [{}, {"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin"}])
def test_a_browser_cannot_unload_by_get(daemon: RunningDaemon, method: str, more: dict[str, str]) -> None:
    answer = daemon.http.request(method, "/unload", headers={**FIREFOX, **more})
    assert answer.status_code == 403
    if method == "GET":
        assert answer.json()["error"]["code"] == "origin_not_allowed"
        assert "POST /api/models/unload" in answer.json()["error"]["message"]
    assert daemon.http.get("/unload").text == "OK"


def test_an_unknown_page_s_get_wakes_no_model(daemon: RunningDaemon) -> None:
    """As a picture in some page of the network, asked of a daemon by plain HTTP."""
    for method in ("GET", "HEAD"):
        assert daemon.http.request(method, "/upstream/demo/x", headers=FIREFOX).status_code == 503
    answer = daemon.http.get("/upstream/demo/x", headers=FIREFOX)
    assert answer.json()["error"]["code"] == "model_not_loaded"
    asked = daemon.http.get("/upstream/demo/x", headers={**FIREFOX, "sec-fetch-site": "none"})  # typed by a person
    assert asked.json()["error"]["code"] == "engine_not_found"
