"""Every path on which an engine answers is answered here too, with or without `/v1`, as the engine would."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from supervisor.core.routes import ASKED, ROUTES, SERVED
from tests.support.daemon import RunningDaemon
from tests.support.llama_source import llama_source
from tests.support.patience import PATIENCE
from tests.support.routes import OF_LLAMA, served_routes

ROUTED = re.compile(r"ctx_http\.(get|post|del)\s*\(\"([^\"]+)\"")

ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("post", "/props"): "changes an engine behind the plan",
    ("get", "/v1/health"): "the daemon's is /health; an engine's is below /upstream/MODEL/v1/health",
    ("post", "/v1/systemone"): "for decision models: below /upstream/MODEL/v1/systemone",
    ("get", "/v1/stream"): "streams that outlive their client: below /upstream/MODEL/v1/stream",
    ("del", "/v1/stream"): "likewise",
    ("post", "/v1/streams/lookup"): "likewise",
    ("get", "/tools"): "tools that an engine runs: never",
    ("post", "/tools"): "likewise",
    ("get", "/cors-proxy"): "fetches any address: never",
    ("post", "/cors-proxy"): "likewise",
}
"""Paths of llama-server that are not the daemon's, each with the reason."""


def ours() -> set[tuple[str, str]]:
    own = {(method.lower(), route.path) for route in served_routes() for method in route.methods or ()}
    own |= {(method.lower(), re.sub(r"{\w+}", ":id_slot", row.path)) for row in ASKED for method in row.summary}
    return {("del" if method == "delete" else method, path) for method, path in own} | {("post", p) for p in SERVED}


def test_every_path_of_llama_server_is_served_or_has_its_reason() -> None:
    text = (llama_source() / "tools/server/server.cpp").read_text(encoding="utf-8")
    theirs = set(ROUTED.findall(text))
    assert len(theirs) > 40
    assert theirs - ours() == set(ELSEWHERE)


@pytest.mark.engine
@pytest.mark.parametrize("path", ["/tools", "//tools/", "/%74ools", "/a/..%2FTools", "/cors-proxy", "/props"])
def test_what_is_for_nobody_is_not_passed_on(daemon: RunningDaemon, path: str) -> None:
    daemon.load("talker")
    answer = daemon.http.post(f"/upstream/talker{path}", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
    assert path != "/props" or daemon.http.get(f"/upstream/talker{path}").status_code == 200


HI = [{"role": "user", "content": "Hi"}]
ASKING: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI, "max_tokens": 4},
    "/v1/completions": {"prompt": "<|say|>", "max_tokens": 4},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 4},
    "/completion": {"prompt": "<|say|>", "n_predict": 4},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 4},
    "/v1/embeddings": {"input": "Hi"},
    "/embeddings": {"content": "Hi"},
    "/v1/rerank": {"query": "Hi", "documents": ["a", "b"]},
    "/tokenize": {"content": "Hi"},
    "/detokenize": {"tokens": [5, 6]},
    "/apply-template": {"messages": HI},
    "/v1/chat/completions/input_tokens": {"messages": HI},
    "/v1/chat/completions/control": {"id": "chatcmpl-none", "action": "reasoning_end"},
    "/v1/responses/input_tokens": {"input": "Hi"},
    "/v1/messages/count_tokens": {"messages": HI},
}
FORMS = {route.path for route in SERVED.values() if route.is_form}
VARY = (
    "id",
    "item_id",
    "created",
    "created_at",
    "completed_at",
    "timings",
    "t_start",
    "system_fingerprint",
    "cached_tokens",
    "cache_read_input_tokens",  # Anthropic's form counts these apart from `input_tokens`
    "input_tokens",
)


def steady(value: Any) -> Any:
    """What two answers to one request have in common."""
    if isinstance(value, dict):
        return {key: steady(one) for key, one in value.items() if key not in VARY}
    return [steady(one) for one in value] if isinstance(value, list) else value


@pytest.mark.engine
@pytest.mark.parametrize(
    "path",
    sorted(path for route in ROUTES for path in route.names if not route.is_form and route.path in OF_LLAMA),
)
def test_a_path_answers_as_the_engine_does(daemon: RunningDaemon, path: str) -> None:
    daemon.load("talker")
    route = SERVED[path]
    asked = ASKING[route.path]
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=daemon.engine_socket("talker")), base_url="http://engine", timeout=PATIENCE
    ) as engine:
        own = engine.post(route.path, json={**asked, "model": "talker"})
    answer = daemon.http.post(path, json={**asked, "model": "talker"})
    assert answer.status_code == own.status_code
    if own.status_code == 200:
        assert steady(answer.json()) == steady(own.json())
    else:  # advice on how to start a server becomes advice on how to set a model
        first, ours = (one.json()["error"]["message"].partition(".")[0] for one in (own, answer))
        assert ours == first


def events(text: str) -> list[Any]:
    """What the events of a stream say; other lines as they are."""
    lines = [line for line in text.splitlines() if line and not line.startswith(":")]
    return [counted(steady(json.loads(line[6:]))) if line.startswith("data: {") else line for line in lines]


def counted(event: Any) -> Any:
    """Our own last event of Anthropic's API counts the prompt, too."""
    if event.get("type") == "message_delta":
        event["usage"] = {"output_tokens": event["usage"]["output_tokens"]}
    return event


@pytest.mark.engine
@pytest.mark.parametrize(
    "path", sorted(path for route in ROUTES for path in route.names if route.generates and not route.is_form)
)
def test_a_path_streams_as_the_engine_does(daemon: RunningDaemon, path: str) -> None:
    """What hears needs another model; its streams are compared in test_transcriptions.py."""
    daemon.load("talker")
    body = {**ASKING[SERVED[path].path], "model": "talker", "stream": True, "cache_prompt": False}
    transport = httpx.HTTPTransport(uds=daemon.engine_socket("talker"))
    with httpx.Client(transport=transport, base_url="http://engine", timeout=PATIENCE) as engine:
        own = engine.post(SERVED[path].path, json=body)
    answer = daemon.http.post(path, json=body)
    assert answer.status_code == own.status_code
    if own.status_code == 200:
        assert len(events(own.text)) > 1
        assert events(answer.text) == events(own.text)
        assert events(daemon.http.post(f"/upstream/talker{path}", json=body).text) == events(own.text)


@pytest.mark.engine
@pytest.mark.parametrize("path", ["/v1/chat/completions/", "/tokenize/", "/props/"])
def test_a_slash_at_the_end_changes_nothing(daemon: RunningDaemon, path: str) -> None:
    daemon.load("talker")
    body = ASKING.get(path.rstrip("/"))
    method = "GET" if body is None else "POST"
    answer = daemon.http.request(method, path, params={"model": "talker"}, json=body)
    assert answer.status_code == 200


@pytest.mark.engine
def test_the_model_of_a_path_that_is_looked_at_stands_in_the_query(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    assert daemon.http.get("/props", params={"model": "parrot"}).json()["model_alias"].startswith("talker")
    assert len(daemon.http.get("/slots", params={"model": "talker"}).json()) == 4
    assert daemon.http.get("/lora-adapters", params={"model": "TALK"}).json() == []
    assert daemon.http.post("/lora-adapters", params={"model": "talker"}, json=[]).status_code == 200
    erased = daemon.http.post("/slots/0", params={"model": "talker", "action": "erase"})
    error = erased.json()["error"]
    assert (erased.status_code, error["code"]) == (501, "not_supported_by_engine")
    assert error["message"].startswith("This server does not support slots action. ")
    saved = daemon.http.post("/slots/0", params={"model": "talker", "action": "save"}, json={"filename": "x"})
    assert (saved.status_code, saved.json()["error"]["param"]) == (400, "action")


@pytest.mark.engine
def test_without_a_name_the_one_model_that_is_loaded_answers(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    daemon.http.post("/api/v1/models/unload", json={"model": "chatter"})
    answer = daemon.http.post("/v1/chat/completions", json={"messages": HI, "max_tokens": 4})
    assert answer.json()["model"] == "talker"
    assert daemon.http.get("/props").status_code == 200
