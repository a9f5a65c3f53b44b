"""Every call of management, with what its schema allows and what it does not, of a daemon with a real engine.

No answer is a fault of the program, and each is as the schema says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from supervisor.core.routes import ASKED, SERVED, UPSTREAM
from tests.fuzz.from_schema import around
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.schemas import schema

pytestmark = pytest.mark.engine

JSON = "application/json"
EXAMPLES = 20
ENDS_THE_DAEMON = {("post", "/api/v1/shutdown")}
TAKES_MINUTES = {("post", "/api/v1/engines")}  # it downloads and compiles; tests/api/test_engines.py asks it
HAS_NO_END = {("get", "/api/v1/events"), ("get", "/models/sse")}
TARGETS = st.sampled_from(["demo", "other", "nobody", "/nowhere.gguf", "owner/repo:Q4_0", "ollama:x"])
"""What a text that names a model says in half of the cases."""


def operations() -> list[tuple[str, str]]:
    """Method and path of all that is neither relayed nor without an end."""
    relayed = {*SERVED, *(row.path for row in ASKED)}
    every = [(method, path) for path, found in schema()["paths"].items() if path not in relayed for method in found]
    ours = [(method, path) for method, path in every if not path.startswith(UPSTREAM)]
    kept = [one for one in ours if one not in ENDS_THE_DAEMON | TAKES_MINUTES | HAS_NO_END]
    return sorted(kept, key=lambda one: "keys" in one[1])  # last: once there is a key, a call without one is refused


@pytest.fixture(scope="module")
def daemon(engine_binary: Path) -> Iterator[RunningDaemon]:
    models = {"other": {"file": "/nowhere/other.gguf"}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def requests(method: str, path: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of httpx's `request`."""
    said = schema()["paths"][path][method]
    parameters = {place: _parameters(said, place) for place in ("path", "query")}
    content = said.get("requestBody", {}).get("content", {}).get(JSON)
    body = st.just(None) if content is None else around(content["schema"], schema()).flatmap(_with_target)
    return st.builds(_request, st.just((method, path)), parameters["path"], parameters["query"], body)


def _parameters(said: dict[str, Any], place: str) -> st.SearchStrategy[dict[str, Any]]:
    named = {one["name"]: around(one["schema"], schema()) for one in said.get("parameters", ()) if one["in"] == place}
    texts = {name: (TARGETS if name == "model" else values) | values for name, values in named.items()}
    return st.fixed_dictionaries(texts)


def _with_target(body: Any) -> st.SearchStrategy[Any]:
    name = next((key for key in ("target", "model") if isinstance(body, dict) and key in body), None)
    return st.just(body) if name is None else st.just(body) | TARGETS.map(lambda target: {**body, name: target})


def _request(call: tuple[str, str], inside: dict[str, Any], query: dict[str, Any], body: Any) -> dict[str, Any]:
    method, path = call
    for name, value in inside.items():
        path = path.replace(f"{{{name}}}", quote(_said(value), safe="") or "-")
    content = None if body is None else json.dumps(body).encode()
    params = {name: _said(value) for name, value in query.items() if name != "follow"}  # which has no end
    return {"method": method, "url": path, "params": params, "content": content, "headers": {"content-type": JSON}}


def _said(value: Any) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize(("method", "path"), operations(), ids=lambda one: str(one))
@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
def test_no_call_is_a_fault_of_the_program(daemon: RunningDaemon, method: str, path: str, data: st.DataObject) -> None:
    answer = daemon.http.request(**data.draw(requests(method, path)))
    assert answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR, answer.text
    said = schema()["paths"][path][method]["responses"]
    content = said.get(str(answer.status_code), said["default"])["content"]
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in content
    if kind == JSON:
        whole = {**content[JSON]["schema"], "components": schema()["components"]}
        assert not [fault.message for fault in Draft202012Validator(whole).iter_errors(answer.json())]


def test_the_daemon_lives_on(daemon: RunningDaemon) -> None:
    assert daemon.http.get("/health").json() == {"status": "ok"}
    assert "Internal error" not in (daemon.home / "daemon-output.log").read_text()
