"""The paths of llama-server's router and of llama-swap; the router's shapes against the real router."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def router(engine_binary: Path, talker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """llama-server's router with the models of the `daemon` fixture."""
    folder = tmp_path_factory.mktemp("router")
    preset = folder / "router.ini"
    preset.write_text(f"[talker]\nmodel = {talker}\nalias = parrot\n[chatter]\nmodel = {talker}\n")
    port = free_port()
    command = [str(engine_binary), "--models-preset", str(preset), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "router.log").open("wb") as log:
        process = subprocess.Popen([*command, "-c", "4096"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False) as client:
            wait_until(lambda: answers(client), "the router answers")
            yield client
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answers(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get("/health").status_code == 200
    return False


def model(client: httpx.Client, name: str, path: str = "/models") -> dict[str, Any]:
    found: list[dict[str, Any]] = client.get(path).json()["data"]
    return next(one for one in found if one["id"] == name)


def wait_for(client: httpx.Client, name: str, value: str) -> None:
    wait_until(lambda: model(client, name)["status"]["value"] == value, f"{name} is {value}")


def shape(value: Any) -> Any:
    """Keys and kinds of a JSON value, without what it says."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def missing(theirs: Any, ours: Any, where: str = "") -> list[str]:
    """What their answer has and ours has not, by path; lists are compared by their first element."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [where]
        return [
            lost for key, one in theirs.items()
            for lost in (missing(one, ours[key], f"{where}.{key}") if key in ours else [f"{where}.{key}"])
        ]  # fmt: skip
    if isinstance(theirs, list) and isinstance(ours, list):
        return missing(theirs[0], ours[0], f"{where}[]") if theirs and ours else []
    return [] if theirs == ours else [f"{where}: {theirs} is not {ours}"]


@pytest.mark.parametrize("path", ["/models", "/v1/models"])
def test_the_list_has_all_that_the_routers_has(daemon: RunningDaemon, router: httpx.Client, path: str) -> None:
    for loaded in (False, True):
        for client in (daemon.http, router):
            if loaded and model(client, "talker")["status"]["value"] == "unloaded":
                assert client.post("/models/load", json={"model": "talker"}).json() == {"success": True}
            if loaded:
                wait_for(client, "talker", "loaded")
        theirs, ours = (shape(model(client, "talker", path)) for client in (router, daemon.http))
        assert missing(theirs, ours) == []
        assert model(daemon.http, "talker", path)["aliases"] == ["parrot"]
        values = [model(client, "talker", path)["status"]["value"] for client in (router, daemon.http)]
        assert values[0] == values[1]
    assert model(daemon.http, "talker", path)["meta"]["n_vocab"] == model(router, "talker", path)["meta"]["n_vocab"]


def test_load_and_unload_answer_as_the_router_does(daemon: RunningDaemon, router: httpx.Client) -> None:
    told: list[list[tuple[int, str]]] = []
    for client in (router, daemon.http):
        said: list[tuple[int, str]] = []
        for call, value in (("load", "loaded"), ("load", "loaded"), ("unload", "unloaded"), ("unload", "unloaded")):
            answer = client.post(f"/models/{call}", json={"model": "chatter"})
            said.append((answer.status_code, answer.json().get("error", {}).get("message", "success")))
            wait_for(client, "chatter", value)
        said.append((client.post("/models/load", json={"model": "nobody"}).status_code, ""))
        told.append(said)
    assert told[0] == told[1]
    assert [status for status, _ in told[1]] == [200, 400, 200, 400, 404]


def test_the_routers_events(daemon: RunningDaemon, router: httpx.Client) -> None:
    told = [_cycle(client) for client in (router, daemon.http)]
    for events in told:
        assert events[0]["event"] == "model_status"
        assert events[0]["data"]["status"] == "loading"
        assert {event["event"] for event in events[1:]} <= {"status_change"}
        assert [event["data"]["status"] for event in events if event["data"]["status"] != "loading"] == [
            "loaded",
            "unloaded",
        ]
        assert {event["model"] for event in events} == {"chatter"}


def _cycle(client: httpx.Client) -> list[dict[str, Any]]:
    """The events of one load and one unload."""
    found: list[dict[str, Any]] = []
    with client.stream("GET", "/models/sse") as answer:
        client.post("/models/load", json={"model": "chatter"})
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            found.append(json.loads(line.removeprefix("data: ")))
            if found[-1]["data"]["status"] == "loaded":
                client.post("/models/unload", json={"model": "chatter"})
            if found[-1]["data"]["status"] == "unloaded":
                return found
    raise AssertionError(f"the events ended: {found}")


def test_a_failed_load_is_told_as_the_router_tells_it(engine_binary: Path, talker: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(talker.read_bytes().replace(b"llama", b"lhasa"))
    models = {"broken": {"file": str(broken)}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        daemon.http.post("/models/load", json={"model": "broken"})
        wait_until(lambda: "failed" in model(daemon.http, "broken")["status"], "it has failed")
        status = model(daemon.http, "broken")["status"]
        assert (status["value"], status["failed"], status["exit_code"]) == ("unloaded", True, 1)


def test_llama_swaps_running_and_unload(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    (one,) = (one for one in running(daemon) if one["model"] == "talker")
    assert one.keys() == {"model", "state", "cmd", "proxy", "ttl", "name", "description"}
    assert one["state"] == "ready"
    assert "llama-server" in one["cmd"]
    pid = daemon.model("talker")["pid"]
    answer = daemon.http.post("/api/models/unload/talker")
    assert (answer.status_code, answer.text) == (200, "OK")
    assert not psutil.pid_exists(pid)
    assert daemon.http.post("/api/models/unload/nobody").status_code == 404
    daemon.load("talker")
    assert daemon.http.get("/unload").text == "OK"
    assert running(daemon) == []
    assert daemon.http.post("/api/models/unload").json() == {"msg": "ok"}


def running(daemon: RunningDaemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.http.get("/running").json()["running"]
    return found


def test_upstream_reaches_any_path_of_the_engine(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    assert len(daemon.http.get("/upstream/talker/slots").json()) == 4
    tokens = daemon.http.post("/upstream/parrot/tokenize", json={"content": "Hello"}).json()["tokens"]
    assert daemon.http.post("/upstream/talker/detokenize", json={"tokens": tokens}).json()["content"] == "Hello"
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
    text = daemon.http.post("/upstream/talker/v1/chat/completions", json=body).text
    assert text.endswith("data: [DONE]\n\n")
    assert daemon.http.get("/upstream/talker/no/such/path").status_code == 404
    answer = daemon.http.get("/upstream/nobody/slots")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert daemon.model("talker")["leases"] == 0


def test_upstream_loads_a_model_but_not_to_look_at_it(daemon: RunningDaemon) -> None:
    daemon.http.post("/api/v1/models/unload", json={"model": "chatter"})
    for look in ("health", "metrics", "slots", "props", "v1/models"):
        answer = daemon.http.get(f"/upstream/chatter/{look}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_loaded")
    assert daemon.model("chatter")["state"] == "unloaded"
    assert daemon.http.post("/upstream/chatter/tokenize", json={"content": "Hi"}).status_code == 200
    assert daemon.model("chatter")["state"] == "ready"


def test_an_upstream_request_is_in_flight_and_can_be_cancelled(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    body = {"messages": [{"role": "user", "content": "endless"}], "stream": True}
    with daemon.http.stream("POST", "/upstream/talker/v1/chat/completions", json=body) as answer:
        arriving = answer.iter_raw()
        next(arriving)
        (one,) = daemon.http.get("/api/v1/requests").json()["requests"]
        assert one["path"] == "/upstream/talker/v1/chat/completions"
        daemon.http.delete(f"/api/v1/requests/{one['id']}")
        wait_until(lambda: daemon.busy_slots("talker") == 0, "its slot is free")
    assert daemon.http.get("/api/v1/requests").json() == {"requests": []}


def test_a_models_id_may_have_slashes(engine_binary: Path, talker: Path) -> None:
    models = {"some/model:Q4": {"file": str(talker), "parallel": 1, "ctx_size": 4096}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        for name in ("some/model:Q4", "some%2Fmodel%3AQ4"):
            answer = daemon.http.post(f"/upstream/{name}/tokenize", json={"content": "Hi"})
            assert answer.status_code == 200, answer.text


def test_peers_paths_ask_for_a_key_like_all_others(engine_binary: Path, talker: Path) -> None:
    settings: Mapping[str, Any] = {
        "server": {"api_keys": ["a-secret-key"]},
        "models": {"talker": {"file": str(talker)}},
    }
    paths = ["/models", "/models/sse", "/running", "/unload", "/upstream/talker/slots", "/api/v1/events"]
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as daemon:
        for path in paths:
            assert daemon.http.get(path).status_code == 401, path
