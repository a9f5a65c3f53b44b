"""Who may use the daemon, asked over real sockets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.client import Client
from supervisor.system.proof import CHALLENGE_HEADER, PROOF_HEADER, is_proven, new_challenge
from tests.support.daemon import RunningDaemon, environment, running_daemon, scratch_home
from tests.support.patience import PATIENCE

KEY = "a-key-for-this-test"
CHAT = {"model": "nobody", "messages": []}


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon without keys. No engine is needed to turn somebody away."""
    settings = {"server": {"allowed_origins": ["http://localhost:3000"]}}
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), settings) as running:
        yield running


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/v1/models/unload", "/api/v1/shutdown"])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example"}, "host_not_allowed"),
        ({"origin": "https://evil.example"}, "origin_not_allowed"),
        ({"origin": "null"}, "origin_not_allowed"),
        ({"sec-fetch-site": "cross-site"}, "origin_not_allowed"),
    ],
)
def test_a_web_page_cannot_drive_the_daemon(
    daemon: RunningDaemon, path: str, headers: dict[str, str], code: str
) -> None:
    answer = daemon.http.post(path, json=CHAT, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)
    assert "access-control-allow-origin" not in answer.headers


def test_an_allowed_page_gets_its_preflight_and_headers(daemon: RunningDaemon) -> None:
    origin = {"origin": "http://localhost:3000"}
    asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    preflight = daemon.http.options("/v1/chat/completions", headers=asked)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert preflight.headers["access-control-allow-headers"] == "content-type"
    answer = daemon.http.post("/v1/chat/completions", json=CHAT, headers=origin)
    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


def test_every_page_may_ask_models_and_manages_nothing() -> None:
    settings = {"server": {"allowed_origins": ["*", "http://localhost:3000"]}}
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), settings) as daemon:
        for origin, managed in (("https://page.example", 403), ("http://localhost:3000", 204)):
            asked = {"origin": origin, "access-control-request-method": "POST"}
            found = daemon.http.options("/v1/chat/completions", headers=asked)
            assert (found.status_code, found.headers["access-control-allow-origin"]) == (204, origin)
            assert daemon.http.post("/v1/chat/completions", json=CHAT, headers={"origin": origin}).status_code == 404
            for path in ("/api/v1/models/unload", "/api/generate", "/api/v0/chat/completions"):
                found = daemon.http.options(path, headers=asked)
                assert (found.status_code, "access-control-allow-origin" in found.headers) == (managed, managed == 204)


def test_the_daemon_proves_itself_without_a_key_to_who_may_read_its_endpoint_file() -> None:
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), env={"SUPERVISOR_API_KEY": KEY}) as daemon:
        endpoint = home / "endpoint.json"
        assert endpoint.stat().st_mode & 0o077 == 0
        secret = json.loads(endpoint.read_text())["secret"]
        challenge = new_challenge()
        answer = daemon.http.get("/health", headers={CHALLENGE_HEADER: challenge})
        assert is_proven(secret, challenge, daemon.http.base_url.port or 0, answer.headers[PROOF_HEADER])
        assert PROOF_HEADER not in daemon.http.get("/health", headers={CHALLENGE_HEADER: "x" * 4000}).headers
        assert PROOF_HEADER not in daemon.http.get("/health").headers
        assert Client(daemon.url, KEY, secret).get("/api/v1/status")["pid"] == daemon.pid


def test_a_key_is_needed_where_one_is_set() -> None:
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), env={"SUPERVISOR_API_KEY": KEY}) as daemon:
        refused = daemon.http.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert daemon.http.get("/v1/models", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
        assert daemon.http.get("/v1/models", headers={"x-api-key": KEY}).status_code == 200
        assert daemon.http.get("/health").json() == {"status": "ok"}
        assert KEY not in (home / "daemon-output.log").read_text()


def serve(home: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "supervisor", "serve", *args],
        env=environment(home, Path("/nonexistent"), **env),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_another_address_without_a_key_is_refused() -> None:
    with scratch_home() as home:
        done = serve(home, "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 1
    assert "[insecure_bind]" in done.stderr
    assert "--insecure" in done.stderr


@pytest.mark.parametrize(("args", "env"), [(("--insecure",), {}), ((), {"SUPERVISOR_API_KEY": KEY})])
def test_another_address_with_a_key_or_insecure_is_served(args: tuple[str, ...], env: dict[str, str]) -> None:
    with (
        scratch_home() as home,
        running_daemon(home, Path("/nonexistent"), {"server": {"host": "0.0.0.0"}}, *args, env=env) as daemon,
    ):
        assert daemon.http.get("/health").status_code == 200


def test_a_taken_port_and_a_second_daemon_are_named(daemon: RunningDaemon) -> None:
    with scratch_home() as home:
        taken = serve(home, "--port", daemon.url.rsplit(":", 1)[1])
    assert (taken.returncode, "[address_in_use]" in taken.stderr) == (1, True)
    second = serve(daemon.home, "--port", "0")
    assert (second.returncode, "[daemon_already_running]" in second.stderr) == (1, True)
    assert daemon.http.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"not json", 400, "invalid_request"),
        (b"[1]", 400, "invalid_request"),
        (b"[" * 100_000, 400, "invalid_request"),
        (b"", 400, "invalid_request"),
        (b'{"model": 5}', 400, "invalid_request"),
        (b'{"model": []}', 400, "invalid_request"),
        (b'{"model": "\xff"}', 400, "invalid_request"),
    ],
)
def test_bad_bodies_get_the_envelope(daemon: RunningDaemon, body: bytes, status: int, code: str) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        answer = daemon.http.post(path, content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_body_over_the_limit_is_refused(engine_binary: Path) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary, {"server": {"max_body_mib": 1}}) as daemon:
        answer = daemon.http.post("/v1/chat/completions", content=b" " * (1 << 20) + b"{}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")


def test_unknown_paths_and_methods_get_the_envelope(daemon: RunningDaemon) -> None:
    answer = daemon.http.get("/v1/nothing")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
    for answer in (daemon.http.get("/v1/chat/completions"), daemon.http.put("/health")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


def test_head_is_get_without_the_body(daemon: RunningDaemon) -> None:
    for path, status in (("/health", 200), ("/v1/models", 200), ("/nowhere", 404)):
        answer = daemon.http.head(path)
        assert (answer.status_code, answer.content) == (status, b"")


def test_a_reload_takes_what_a_start_would_take_and_says_what_to_do() -> None:
    """The same rules as `config check` and `serve`, and the right advice where the file is passed over."""
    with scratch_home() as home:
        file = home / "supervisor.yaml"
        file.write_text("server: {watch_config: false}\n")
        file.chmod(0o644)
        with running_daemon(home, Path("/nonexistent"), None, "--config", "") as daemon:

            def reloaded() -> str:
                answer = daemon.http.post("/api/v1/config/reload")
                message: str = answer.json().get("error", {}).get("message", "")
                return message

            assert reloaded() == ""
            file.write_text("server: {host: 0.0.0.0}\n")
            assert "supervisor.yaml:1:16: server.host: 0.0.0.0 can be reached from other machines" in reloaded()
            file.chmod(0o666)
            assert f"`chmod go-w {file}`" in reloaded()
            file.unlink()
            assert "Put it back" in reloaded()
