"""Every call of management has a schema of its answer, and answers as that says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.config import Settings
from supervisor.demo.maker import write_scripted_gguf
from supervisor.hub.partials import SUFFIX
from supervisor.probe.profiles import load_profile
from supervisor.service.build import plans_alone, without_daemon
from supervisor.service.resolve import Asked
from supervisor.system.paths import places
from tests.api.conftest import SCRIPT
from tests.hub.test_choosing import publish
from tests.support.daemon import running_daemon, scratch_home
from tests.support.hub import LocalHub
from tests.support.schemas import faults, operations, schema

JSON = "application/json"
CHAT = {"model": "a/b:Q4_0", "stream": True, "messages": [{"role": "user", "content": "endless"}]}


@pytest.fixture
def home() -> Iterator[Path]:
    with scratch_home() as folder:
        yield folder


OF_ENGINES = {("post", "/api/v1/engines"), ("post", "/api/v1/engines/use")}
"""What changes the installations of all daemons; tests/api/test_engines.py asks it where there are others."""

OF_CAPTURES = {("get", "/api/v1/captures/{id}"), ("delete", "/api/v1/captures/{id}")}
"""Of one captured request; tests/api/test_captures.py asks them where some are."""

OF_WORKERS = {
    ("get", "/api/v1/workers"),
    ("post", "/api/v1/workers/invitations"),
    ("delete", "/api/v1/workers/{name}"),
    ("get", "/api/v1/cluster"),
    ("post", "/api/v1/cluster/invitations"),
    ("post", "/api/v1/cluster/nodes/{name}/drain"),
    ("delete", "/api/v1/cluster/nodes/{name}"),
    ("post", "/api/v1/cluster/leave"),
    ("post", "/api/v1/cluster/plan"),
    ("get", "/api/v1/cluster/config"),
    ("post", "/api/v1/cluster/config"),
    ("post", "/api/v1/cluster/config/check"),
    ("get", "/api/v1/cluster/config/history"),
    ("post", "/api/v1/cluster/config/revert"),
}
"""Of other hosts; tests/workers and tests/cluster ask them where some are."""

AS_CAPTURED = ("post", "/api/v1/captures/{id}/replay")
"""It answers as the path that was captured."""


class Asking:
    """Asks the daemon and notes what answered otherwise than the schema says. `asked`: what was."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.asked: set[tuple[str, str]] = set()
        self.wrong: list[str] = []

    def with_key(self, key: str) -> None:
        """From now on every call carries this key."""
        self._http.headers["authorization"] = f"Bearer {key}"

    def __call__(self, method: str, path: str, status: int = 200, at: str | None = None, **body: Any) -> Any:
        """The JSON of a good answer. `at`: the path itself, where it has parameters."""
        answer = self._http.request(method, at or path, json=body or None)
        assert answer.status_code == status, answer.text
        self.asked.add((method, path))
        self.wrong += [f"{method} {path}: {fault}" for fault in faults(answer.json(), method, path, status)]
        return answer.json()


def test_every_call_of_management_says_what_it_answers() -> None:
    assert len(operations()) > 20
    for method, path, said in operations():
        if (method, path) == AS_CAPTURED:
            continue
        good = [answer for status, answer in said["responses"].items() if status.startswith("2")]
        assert good, (method, path)
        for answer in good:
            assert answer["content"], (method, path)
            told = [content for kind, content in answer["content"].items() if kind != "text/event-stream"]
            assert all(content["schema"] for content in told), (method, path)
        assert said["responses"]["default"]["content"][JSON]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_an_answer_with_another_key_or_without_one_is_found() -> None:
    assert faults({"level": "info"}, "get", "/api/v1/logs/level") == []
    assert faults({"level": "info", "more": 1}, "get", "/api/v1/logs/level") != []
    assert faults({}, "get", "/api/v1/logs/level") != []
    assert "ModelStatus" in schema()["components"]["schemas"]


def test_the_schema_of_errors_has_every_key_that_they_have() -> None:
    for name in ("Error", "AnthropicError"):
        error = schema()["components"]["schemas"][name]["properties"]["error"]
        assert {*error["properties"]} == {"message", "type", "code", "param", "log_lines"}
        assert {*error["required"]} == {"message", "type", "code", "param"}


def test_what_a_download_left_on_disk_has_the_keys_of_a_model(home: Path, engine_binary: Path, hub: LocalHub) -> None:
    begun = home / "hf" / "hub" / "models--a--c" / "blobs"
    begun.mkdir(parents=True)
    (begun / f"{'5a' * 32}{SUFFIX}").write_bytes(b"GGUF")
    with running_daemon(home, engine_binary, {}, env=hub.environment(home / "hf")) as daemon:
        (left,) = Asking(daemon.http)("get", "/api/v1/disk")["models"]
    assert (left["repo"], left["commit"], left["missing"], left["size_bytes"]) == ("a/c", None, [], 4)
    assert left["problem"]


def test_what_a_daemon_answers_is_as_the_schema_says(
    home: Path, engine_binary: Path, hub: LocalHub, tmp_path: Path
) -> None:
    endless = tmp_path / "endless.gguf"
    write_scripted_gguf(endless, SCRIPT)
    hub.add("a/b", {"m-Q4_0.gguf": endless})
    publish(hub, layers=512)
    settings = {"models": {"broken": {"file": str(tmp_path / "none.gguf")}}}
    with running_daemon(home, engine_binary, settings, env=hub.environment(home / "hf")) as daemon:
        ask = Asking(daemon.http)
        ask("get", "/api/v1/devices")
        assert not ask("post", "/api/v1/plan", target="a/llama:BF16")["fits"]
        assert ask("post", "/api/v1/plan", target="demo")["fits"]
        assert len(ask("post", "/api/v1/estimate", target="demo", options={"ctx_size": [512, 1024]})) == 2
        ask("post", "/api/v1/estimate", target="demo")
        ask("post", "/api/v1/models", model="a/b:Q4_0")
        ask("post", "/api/v1/models/verify", model=None)
        ask("get", "/api/v1/disk")
        assert daemon.http.post("/api/v1/models/load", json={"target": "broken"}).status_code == 422
        ask("post", "/api/v1/models/load", 202, target="demo", wait=False)
        ask("post", "/api/v1/models/load", target="a/b", options={"parallel": 1, "ctx_size": 131072})
        ask("post", "/api/v1/models/pin", model="demo")
        with daemon.http.stream("POST", "/v1/chat/completions", json=CHAT) as answer:
            lines = answer.iter_lines()
            assert next(lines)
            (request,) = ask("get", "/api/v1/requests")["requests"]
            shown = {one["id"]: one for one in ask("get", "/api/v1/models")["models"]}
            ask("delete", "/api/v1/requests/{id}", at=f"/api/v1/requests/{request['id']}")
        assert (shown["broken"]["error"], shown["a/b:Q4_0"]["plan"]) != (None, None)
        assert shown["a/b:Q4_0"]["variants"]
        ask("post", "/api/v1/models/unpin", model="demo")
        ask("post", "/api/v1/models/unload", model="a/b:Q4_0")
        ask("post", "/api/v1/models/forget", model="a/b:Q4_0")
        ask("delete", "/api/v1/models", at="/api/v1/models?model=a/b:Q4_0")
        ask("post", "/api/v1/config/reload")
        _ask_of_what_is(ask)
        _ask_of_what_was(ask)
        _ask_of_levels_and_keys(ask)
        ask("post", "/api/v1/shutdown", 202)
    assert ask.wrong == []
    json = {(method, path) for method, path, said in operations() if _is_json(said)}
    assert ask.asked == json - OF_ENGINES - OF_CAPTURES - OF_WORKERS


def _ask_of_what_is(ask: Asking) -> None:
    ask("get", "/api/v1/memory")
    assert ask("get", "/api/v1/cluster/nodes") == {"node": None, "connected": False, "unable": None, "nodes": []}
    ask("get", "/api/v1/config")
    ask("get", "/api/v1/engines")
    ask("get", "/api/v1/toolcalls")
    ask("get", "/api/v1/status")


def _ask_of_what_was(ask: Asking) -> None:
    found = ask("get", "/api/v1/history")["requests"]
    ask("get", "/api/v1/history/{id}", at=f"/api/v1/history/{found[0]['id']}")
    assert ask("get", "/api/v1/history/summary")["models"]
    assert ask("get", "/api/v1/history/loads")["loads"]
    ask("delete", "/api/v1/history")
    assert ask("get", "/api/v1/captures")["captures"] == []
    ask("delete", "/api/v1/captures")


def _ask_of_levels_and_keys(ask: Asking) -> None:
    if sys.platform == "linux":  # elsewhere no daemon is taken over
        ask("post", "/api/v1/restart")
    ask("get", "/api/v1/logs/level")
    ask("post", "/api/v1/logs/level", level="debug")
    first = ask("post", "/api/v1/keys", name="owner", scopes=["manage"])
    ask.with_key(first["key"])
    ask("post", "/api/v1/keys", name="app", models=["demo"])
    ask("get", "/api/v1/keys")
    ask("post", "/api/v1/keys/{name}/rotate", at="/api/v1/keys/app/rotate")
    ask("delete", "/api/v1/keys/{name}", at="/api/v1/keys/app")


def _is_json(said: dict[str, Any]) -> bool:
    return any(JSON in answer.get("content", {}) for status, answer in said["responses"].items() if status != "default")


@pytest.mark.anyio
async def test_what_devices_there_are_makes_no_difference(demo_model: Path) -> None:
    env = {"HOME": str(demo_model.parent), "SUPERVISOR_HOME": str(demo_model.parent), "PATH": ""}
    with without_daemon(Settings(), places(env), env, load_profile("1x24gb")) as parts:
        plans = plans_alone(parts)
        assert faults(await plans.devices(again=False), "get", "/api/v1/devices") == []
        planned = await plans.plan(Asked(str(demo_model)))
        assert planned["devices"] == ["CUDA0"]
        assert faults(planned, "post", "/api/v1/plan") == []
