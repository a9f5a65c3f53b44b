"""Every path names the scopes that open it, and nothing else does: the table against the routes, and real sockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Asgi

from supervisor.api.guard import Guard
from supervisor.core.requests.access import AccessRules, RulesByAddress
from supervisor.core.requests.keys import KeyRules
from supervisor.core.requests.scopes import ROWS, Row, Scope, needed, needed_of_engine
from supervisor.core.routes import ASKED, ROUTES, SERVED
from supervisor.service.keys import Keys
from supervisor.store.keyfile import KeyFile
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.routes import code_of, served_routes

PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
NUMBERS = {"slot": "0", "id": "1"}
OPEN = {("GET", "/health"), ("GET", "/ui"), ("GET", "/ui/x")}
INFER, MANAGE, READ = Scope.INFER, Scope.MANAGE, Scope.READ


def calls() -> set[tuple[str, str]]:
    """Every method and path, with its parameters, that anything serves."""
    framework = {(method, route.path) for route in served_routes() for method in (route.methods or ())}
    relayed = {("POST", path) for path in SERVED}
    asked = {(method, row.path) for row in ASKED for method in row.summary}
    return {(method, path) for method, path in framework | relayed | asked if method != "HEAD"}


def called(row: Row) -> tuple[str, str]:
    """A request that the row is for."""
    return row.method, PARAMETER.sub(lambda found: NUMBERS.get(found[1], "x"), row.path)


def named(row: Row) -> str:
    return f"{row.method} {row.path}"


def test_every_route_has_one_row_and_every_row_is_a_route() -> None:
    rows = [(row.method, row.path) for row in ROWS]
    assert len(rows) == len(set(rows))
    assert set(rows) == calls()


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_request_is_judged_by_its_own_row(row: Row) -> None:
    method, path = called(row)
    assert needed(method, path) == row
    assert needed(method, f"{path}/").scopes >= row.scopes
    if method == "GET":
        assert needed("HEAD", path) == row
    for other in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - {method}:
        assert needed(other, path) != row


@pytest.mark.parametrize(
    "path",
    ["//v1/models", "/V1/MODELS", "/v1/models2", "/v1", "/api/v1/status/more", "/api/v1/statuses", "/docs/x"],
)
def test_what_is_in_no_row_is_for_who_manages(path: str) -> None:
    assert needed("GET", path).scopes == {MANAGE}


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        *(("POST", path, INFER) for route in ROUTES for path in route.names),
        ("POST", "/v1/audio/transcriptions", INFER),
        ("GET", "/lora-adapters", INFER),
        *(("GET", path, READ) for path in ("/health", "/metrics", "/slots", "/props", "/v1/models")),
        ("HEAD", "/slots", READ),
        *(("POST", path, MANAGE) for path in ("/slots/0", "/lora-adapters", "/props", "/v1/systemone", "/models/load")),
        *(("GET", path, MANAGE) for path in ("/", "/slots/0", "/v1/chat/completions", "/nowhere", "/slots/")),
        ("GET", "/api/v1/status", MANAGE),
        ("PUT", "/v1/chat/completions", MANAGE),
        ("POST", "/v1/chat/completions/", MANAGE),
        ("POST", "/V1/chat/completions", MANAGE),
    ],
)
def test_paths_of_an_engine_are_opened_one_by_one(method: str, path: str, scope: Scope) -> None:
    scopes = needed_of_engine(method, path).scopes
    assert scopes == ({READ, MANAGE} if scope is READ else {scope})


# -- the guard, in front of something that only notes who got through


@dataclass
class Bench:
    """A guard with three keys of one scope each, whose text is the scope."""

    guard: Guard
    reached: list[str]

    def ask(self, method: str, path: str, text: str | None) -> int:
        """The status of the answer; 200 where the request got through."""
        sent: list[Message] = []
        headers = [(b"host", b"localhost")] + ([] if text is None else [(b"x-api-key", text.encode())])
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError("the body was read")

        before = len(self.reached)
        asyncio.run(self.guard(scope, receive, send))
        return 200 if len(self.reached) > before else int(sent[0]["status"])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    texts = iter(sorted(Scope, reverse=True))
    file = KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")
    keys = Keys(file, configured=lambda: True, make_text=lambda: next(texts))

    async def add() -> None:
        for scope in (READ, MANAGE, INFER):
            await keys.add(KeyRules(scope, frozenset({scope})))

    reached: list[str] = []

    async def app(scope: Asgi, _receive: Receive, _send: Send) -> None:
        reached.append(scope["path"])

    asyncio.run(add())
    return Bench(Guard(app, lambda: RulesByAddress(AccessRules(), {}), keys.admit), reached)


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_key_opens_what_its_scope_is_for(bench: Bench, row: Row) -> None:
    call = called(row)
    for scope in Scope:
        assert bench.ask(*call, scope) == (200 if scope in row.scopes else 403), scope
    assert bench.ask(*call, None) == (200 if call in OPEN else 401)
    assert bench.ask(*call, "another") == (200 if call in OPEN else 401)


def test_what_is_below_upstream_goes_on_to_where_its_model_is_known(bench: Bench) -> None:
    assert [bench.ask("POST", "/upstream/a/x", scope) for scope in Scope] == [200, 200, 200]
    assert bench.ask("POST", "/upstream/a/x", None) == 401


def test_unknown_paths_are_not_there_for_who_may_not_manage(bench: Bench) -> None:
    assert {scope: bench.ask("GET", "/nowhere", scope) for scope in Scope} == {INFER: 404, MANAGE: 200, READ: 404}


# -- a real daemon


@dataclass
class Locked:
    """A daemon with keys, by name."""

    daemon: RunningDaemon
    texts: dict[str, str]

    def ask(self, method: str, path: str, name: str | None, **more: Any) -> httpx.Response:
        headers = {} if name is None else {"authorization": f"Bearer {self.texts[name]}"}
        return self.daemon.http.request(method, path, headers=headers, **more)

    def code(self, method: str, path: str, name: str | None, **more: Any) -> tuple[int, str]:
        answer = self.ask(method, path, name, **more)
        return answer.status_code, code_of(answer)


def add(daemon: RunningDaemon, by: str | None, name: str, **rules: Any) -> str:
    """Add a key; its text."""
    headers = {} if by is None else {"x-api-key": by}
    answer = daemon.http.post("/api/v1/keys", json={"name": name, **rules}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["key"])


@pytest.fixture(scope="module")
def locked() -> Iterator[Locked]:
    """No engine is needed to turn somebody away."""
    with scratch_home() as home, running_daemon(home, Path("/nonexistent")) as daemon:
        texts = {"manage": add(daemon, None, "manage", scopes=["manage"])}
        for name in ("infer", "read"):
            texts[name] = add(daemon, texts["manage"], name, scopes=[name])
        yield Locked(daemon, texts)


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_over_sockets_a_wrong_scope_is_403_and_no_key_401(locked: Locked, row: Row) -> None:
    call = called(row)
    if call not in OPEN:
        assert locked.code(*call, None) == (401, "unauthorized")
    for scope in set(Scope) - row.scopes:
        assert locked.code(*call, scope) == (403, "forbidden")
        if row.method == "GET":
            assert locked.ask("HEAD", call[1], scope).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "wrong"),
    [
        ("POST", "/upstream/demo/v1/chat/completions", "read"),
        ("POST", "/upstream/demo/v1/chat/completions", "manage"),
        ("POST", "/upstream/demo/slots/0?action=erase", "infer"),
        ("POST", "/upstream/demo/%73lots/0?action=erase", "infer"),
        ("POST", "/upstream/demo/lora-adapters", "infer"),
        ("GET", "/upstream/demo/slots", "infer"),
        ("GET", "/upstream/demo/", "read"),
        ("GET", "/upstream/demo/lora-adapters", "read"),  # it would load the model
        ("POST", "/upstream/demo//v1/chat/completions", "infer"),
        ("POST", "/upstream/demo/v1/chat/completions%2f", "infer"),
        ("DELETE", "/upstream/demo/v1/chat/completions", "infer"),
    ],
)
def test_below_upstream_the_engine_s_path_decides(locked: Locked, method: str, path: str, wrong: str) -> None:
    status, code = locked.code(method, path, wrong)
    assert (status, code) == (403, "forbidden")


def test_what_only_looks_is_let_through_below_upstream(locked: Locked) -> None:
    assert locked.code("GET", "/upstream/demo/slots", "read") == (503, "model_not_loaded")
    assert locked.code("GET", "/slots?model=demo", "read") == (503, "model_not_loaded")
    assert locked.code("GET", "/slots?model=demo", "infer") == (403, "forbidden")


@pytest.mark.parametrize("place", ["key", "api_key", "api-key", "x-api-key", "token", "access_token", "authorization"])
def test_a_key_in_the_address_is_none(locked: Locked, place: str) -> None:
    for text in (locked.texts["read"], f"Bearer {locked.texts['read']}"):
        assert locked.daemon.http.get("/api/v1/status", params={place: text}).status_code == 401
        cookie = {"cookie": f"{place}={text}"}
        assert locked.daemon.http.get("/api/v1/status", headers=cookie).status_code == 401


def test_an_error_of_a_key_has_the_form_of_the_path_s_api(locked: Locked) -> None:
    answer = locked.ask("POST", "/v1/messages", "read", json={})
    assert (answer.status_code, answer.json()["type"], answer.json()["error"]["type"]) == (
        403,
        "error",
        "permission_error",
    )
    assert "www-authenticate" not in answer.headers
    assert locked.ask("GET", "/v1/models", None).headers["www-authenticate"] == "Bearer"


def test_a_rate_is_answered_with_the_time_to_wait_and_another_key_goes_on(locked: Locked) -> None:
    slow = add(locked.daemon, locked.texts["manage"], "slow", scopes=["read"], requests_per_minute=1)
    other = add(locked.daemon, locked.texts["manage"], "slow2", scopes=["read"], requests_per_minute=1)
    assert locked.daemon.http.get("/v1/models", headers={"x-api-key": slow}).status_code == 200
    answer = locked.daemon.http.get("/v1/models", headers={"x-api-key": slow})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limited")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert "x-should-retry" not in answer.headers
    assert locked.daemon.http.get("/v1/models", headers={"x-api-key": other}).status_code == 200


def test_the_keys_are_managed_over_rest(locked: Locked) -> None:
    text = add(locked.daemon, locked.texts["manage"], "bot", models=["qwen*"], token_budget=5)
    shown = {key["name"]: key for key in locked.ask("GET", "/api/v1/keys", "manage").json()["keys"]}
    assert "key" not in shown["bot"]
    assert text not in locked.ask("GET", "/api/v1/keys", "manage").text
    assert (shown["bot"]["scopes"], shown["bot"]["models"], shown["bot"]["token_budget"]) == (["infer"], ["qwen*"], 5)
    assert (shown["bot"]["state"], shown["bot"]["usage"]["requests"]) == ("active", 0)
    rotated = locked.ask("POST", "/api/v1/keys/bot/rotate", "manage")
    assert rotated.headers["cache-control"] == "no-store"
    new = rotated.json()["key"]
    statuses = [locked.daemon.http.get("/v1/models", headers={"x-api-key": one}).status_code for one in (text, new)]
    assert statuses == [401, 200]
    assert locked.ask("DELETE", "/api/v1/keys/bot", "manage").json()["state"] == "revoked"
    assert locked.daemon.http.get("/v1/models", headers={"x-api-key": new}).status_code == 401
    for method, path in (
        ("DELETE", "/api/v1/keys/bot"),
        ("POST", "/api/v1/keys/bot/rotate"),
        ("DELETE", "/api/v1/keys/bo"),
    ):
        assert locked.code(method, path, "manage") == (404, "key_not_found")
    assert locked.code("DELETE", "/api/v1/keys/manage", "manage") == (409, "key_refused")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "../a"},
        {"name": "a" * 65},
        {"name": "ok", "scopes": []},
        {"name": "ok", "scopes": ["root"]},
        {"name": "ok", "requests_per_minute": 0},
        {"name": "ok", "token_budget": -1},
        {"name": "ok", "expires_at": 1.0},
        {"name": "ok", "scopes": ["manage"], "models": ["a"]},
        {"name": "ok", "key": "my-own-text"},
    ],
)
def test_a_key_that_makes_no_sense_is_refused(locked: Locked, wrong: dict[str, Any]) -> None:
    assert locked.code("POST", "/api/v1/keys", "manage", json=wrong) == (400, "invalid_request")


def test_no_key_is_in_a_log(locked: Locked) -> None:
    text = add(locked.daemon, locked.texts["manage"], "logged")
    locked.daemon.http.get("/v1/models", headers={"x-api-key": text})
    written = b"".join(path.read_bytes() for path in locked.daemon.home.rglob("*") if path.is_file())
    assert b"key_added" in written
    assert not any(one.encode() in written for one in (text, *locked.texts.values()))


def test_keys_and_the_closed_door_outlive_the_daemon_and_a_damaged_file_keeps_it_from_starting() -> None:
    with scratch_home() as home:
        with running_daemon(home, Path("/nonexistent")) as daemon:
            text = add(daemon, None, "m", scopes=["manage"])
            assert daemon.http.get("/v1/models").status_code == 401
        with running_daemon(home, Path("/nonexistent")) as daemon:
            assert daemon.http.get("/v1/models").status_code == 401
            assert daemon.http.get("/v1/models", headers={"x-api-key": text}).status_code == 200
        (home / "keys.json").write_text("{")
        with pytest.raises(AssertionError, match="keys_unusable"), running_daemon(home, Path("/nonexistent")):
            pass
