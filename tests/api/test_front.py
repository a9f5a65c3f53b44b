"""What a client finds that comes to the front door: where it is, whether the daemon is ready, and where else to go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor import __version__
from supervisor.core.requests.elsewhere import ELSEWHERE, ours_for
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.routes import served_routes, wanted_alone

KEY = "a-key-for-this-test"
WITH_KEY = {"authorization": f"Bearer {KEY}"}
STREAMS = {"/api/v1/events", "/models/sse", "/api/v1/logs"}


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon that has no engine: nobody here needs one."""
    with scratch_home() as home, running_daemon(home, Path("/nonexistent")) as running:
        yield running


def test_a_program_gets_json_with_links_that_lead_somewhere(daemon: RunningDaemon) -> None:
    told = daemon.http.get("/").json()
    assert (told["name"], told["version"]) == ("llama-supervisor", __version__)
    for link in told["links"].values():
        assert daemon.http.get(link).status_code == 200


def test_a_browser_is_sent_to_the_dashboard(daemon: RunningDaemon) -> None:
    sent = daemon.http.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (sent.status_code, sent.headers["location"], sent.content) == (303, "/ui", b"")
    assert sent.headers["content-security-policy"].startswith("default-src 'none'")
    assert daemon.http.get(sent.headers["location"]).headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("path", "ours"), [(path, ours) for paths in ELSEWHERE.values() for path, ours in paths.items()]
)
def test_a_path_of_another_program_says_where_to_go(daemon: RunningDaemon, path: str, ours: str) -> None:
    for method in ("GET", "POST"):
        error = daemon.http.request(method, path).json()["error"]
        assert error["code"] == "route_not_found"
        assert error["message"] == f"There is no {method} {path}. {ours_for(path)}"
        assert ours in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("GET", "/api/v1/plan", "POST"),
        ("POST", "/health", "GET, HEAD"),
        ("PUT", "/api/v1/requests/7", "DELETE"),
        ("PUT", "/api/v1/keys", "GET, HEAD, POST"),
        ("DELETE", "/openapi.json", "GET, HEAD"),
        ("DELETE", "/lora-adapters", "GET, HEAD, POST"),
        ("QUERY", "/props/", "GET, HEAD"),
        ("HEAD", "/unload", "GET"),
    ],
)
def test_another_method_says_which_ones_there_are(daemon: RunningDaemon, method: str, path: str, allow: str) -> None:
    answer = daemon.http.request(method, path)
    assert (answer.status_code, answer.headers.get("allow")) == (405, allow)
    if method != "HEAD":
        error, plain = answer.json()["error"], path.rstrip("/")
        assert error["code"] == "method_not_allowed"
        assert error["message"] == f"There is no {method} {plain}. There is {allow} {plain}."


def test_what_has_no_method_is_not_there(daemon: RunningDaemon) -> None:
    answer = daemon.http.get("/nowhere")
    assert (answer.status_code, "allow" in answer.headers) == (404, False)
    assert answer.json()["error"]["message"] == "There is no GET /nowhere. See /docs."


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/models", "/upstream/demo/v1/realtime", "/v1/chat/completions"])
def test_a_websocket_is_refused_in_words(daemon: RunningDaemon, path: str) -> None:
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "WebSocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "eA==",
    }
    answer = daemon.http.get(path, headers=upgrade)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
    assert "no websockets" in answer.json()["error"]["message"]


def test_another_upgrade_is_answered_as_if_it_were_not_wanted(daemon: RunningDaemon) -> None:
    assert daemon.http.get("/health", headers={"connection": "Upgrade", "upgrade": "h2c"}).json() == {"status": "ok"}


def paths() -> list[str]:
    found = {route.path for route in served_routes() if "GET" in (route.methods or ())}
    return sorted(path for path in found - STREAMS - {"/"} if "{" not in path)


@pytest.mark.parametrize("path", paths())
def test_a_slash_at_the_end_changes_nothing(daemon: RunningDaemon, path: str) -> None:
    plain = daemon.http.get(path)
    for slashes in ("/", "//"):
        assert daemon.http.get(f"{path}{slashes}").status_code == plain.status_code == wanted_alone(path)


def test_a_daemon_that_loads_nothing_is_ready(daemon: RunningDaemon) -> None:
    assert daemon.http.get("/ready").json() == {"status": "ready"}
    assert daemon.http.get("/health", params={"ready": ""}).json() == {"status": "ok"}


@pytest.mark.engine
def test_a_daemon_is_ready_when_its_preloads_are_loaded(engine_binary: Path, talker: Path) -> None:
    models = {"first": {"file": str(talker), "preload": True}, "later": {"file": str(talker)}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        wait_until(lambda: daemon.http.get("/ready").status_code == 200, "the daemon is ready")
        assert (daemon.model("first")["state"], daemon.model("later")["state"]) == ("ready", "unloaded")
        daemon.http.post("/api/v1/models/unload", json={"model": "first"})
        assert daemon.http.get("/ready").status_code == 200


@pytest.mark.engine
def test_a_preload_that_fails_is_missing_until_it_is_loaded(engine_binary: Path, talker: Path, tmp_path: Path) -> None:
    file = tmp_path / "first.gguf"
    file.write_bytes(b"GGUF and nothing more")
    settings = {"models": {"first": {"file": str(file), "preload": True}}}
    with (
        scratch_home() as home,
        running_daemon(home, engine_binary, settings, env={"SUPERVISOR_API_KEY": KEY}) as daemon,
    ):
        assert daemon.http.get("/ready").status_code == 401

        def said() -> str:
            answer = daemon.http.get("/ready", headers=WITH_KEY)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
            assert int(answer.headers["retry-after"]) >= 1
            message: str = answer.json()["error"]["message"]
            return message

        wait_until(lambda: "first (failed: gguf_invalid)" in said(), "the load fails")
        plain = daemon.http.get("/health", params={"ready": ""})
        assert (plain.status_code, "first" in plain.text) == (503, False)
        assert daemon.http.get("/health").status_code == 200
        file.write_bytes(talker.read_bytes())
        load = daemon.http.post("/api/v1/models/load", json={"target": "first"}, headers=WITH_KEY)
        assert load.status_code == 200
        assert daemon.http.get("/health", params={"ready": ""}).status_code == 200
