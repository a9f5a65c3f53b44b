"""`/api/v1`: load, unload, status, logs, shutdown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor.store import Database
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine


@pytest.fixture
def daemon(engine_binary: Path) -> Iterator[RunningDaemon]:
    with scratch_home() as home, running_daemon(home, engine_binary) as running:
        yield running


def test_loading_a_file_is_idempotent_and_makes_it_a_model(daemon: RunningDaemon, talker: Path) -> None:
    first = daemon.load(str(talker), ctx_size=4096, parallel=1)
    assert (first["id"], first["state"], first["source"]) == ("talker", "ready", "file")
    assert (first["n_ctx"], first["n_slots"]) == (4096, 1)
    assert 0 < first["load_seconds"] < 30
    assert first["rss_bytes"] > 1 << 20
    again = daemon.load(str(talker), ctx_size=4096, parallel=1)
    assert again["pid"] == first["pid"]
    assert daemon.load("talker")["pid"] == first["pid"]


def test_other_options_restart_a_loaded_model_and_the_rest_stays(daemon: RunningDaemon, talker: Path) -> None:
    first = daemon.load(str(talker), ctx_size=4096, parallel=1)
    changed = daemon.load("talker", parallel=2)
    assert changed["pid"] != first["pid"]
    assert (changed["state"], changed["n_slots"], changed["n_ctx"]) == ("ready", 2, 2048)


def test_options_that_cannot_be_leave_a_loaded_model_alone(daemon: RunningDaemon, talker: Path) -> None:
    first = daemon.load(str(talker))
    wrong = {"target": "talker", "options": {"extra_args": ["--nonsense"]}}
    answer = daemon.http.post("/api/v1/models/load", json=wrong)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "option_not_supported")
    assert daemon.load("talker")["pid"] == first["pid"]


def test_options_that_fit_nowhere_change_nothing(daemon: RunningDaemon, talker: Path) -> None:
    """Neither the engine that runs nor what the next load takes."""
    first = daemon.load(str(talker))
    for options, expected in (
        ({"parallel": 99999}, (400, "invalid_request")),
        ({"ctx_size": 2_000_000_000}, (507, "does_not_fit")),
    ):
        for target in ("talker", "demo"):
            answer = daemon.http.post("/api/v1/models/load", json={"target": target, "options": options})
            assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert daemon.load("talker")["pid"] == first["pid"]
    assert daemon.chat("demo", "Who are you?").status_code == 200


def test_devices_are_told_with_what_is_free(daemon: RunningDaemon) -> None:
    daemon.load("demo")
    found = daemon.http.get("/api/v1/devices", params={"again": True}).json()
    host = found["host"]
    assert 0 < host["usable_bytes"] <= host["total_bytes"] - host["reserve_bytes"]
    assert 0 < host["available_bytes"] <= host["total_bytes"]
    assert not [problem for problem in found["problems"] if problem["probe"] == "engine"]
    assert daemon.http.get("/api/v1/devices", params={"again": "x"}).json()["error"]["code"] == "invalid_request"


def test_what_the_configuration_allowed_a_client_need_not_repeat(
    engine_binary: Path, talker: Path, tmp_path: Path
) -> None:
    """Arguments that only the configuration may give stay when a client changes another option."""
    model = {"file": str(talker), "parallel": 1, "extra_args": ["--media-path", str(tmp_path)]}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": {"m": model}}) as daemon:
        assert daemon.load("m", ctx_size=2048)["n_ctx"] == 2048
        asked = {"target": "m", "options": {"extra_args": ["--media-path", "/"]}}
        answer = daemon.http.post("/api/v1/models/load", json=asked)
        assert answer.json()["error"]["param"] == "extra_args"


def test_load_streams_its_states(daemon: RunningDaemon) -> None:
    headers = {"accept": "text/event-stream"}
    with daemon.http.stream("POST", "/api/v1/models/load", json={"target": "demo"}, headers=headers) as answer:
        states = [json.loads(line[6:])["state"] for line in answer.iter_lines() if line.startswith("data: ")]
    assert states[0] == "reserved"
    assert states[-1] == "ready"
    assert "loading" in states


def test_a_failed_load_streams_its_reason(daemon: RunningDaemon, tmp_path: Path, talker: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(talker.read_bytes().replace(b"llama", b"lhasa"))  # an architecture that no engine knows
    headers = {"accept": "text/event-stream"}
    with daemon.http.stream("POST", "/api/v1/models/load", json={"target": str(broken)}, headers=headers) as answer:
        last = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")][-1]
    assert last["state"] == "failed"
    assert last["error"]["code"] == "architecture_unknown"
    assert last["error"]["log_lines"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"target": "nobody"}, 404, "model_not_found"),
        ({"target": "relative/path.gguf"}, 400, "invalid_request"),
        ({"target": "/absent/model.gguf"}, 422, "model_file_invalid"),
        ({"target": "demo", "options": {"ctx_sise": 1}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"env": {"LD_PRELOAD": "/x.so"}}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"chat_template_file": "/etc/passwd"}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"lora": [{"path": "/etc/passwd"}]}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"mmproj": "/etc/passwd"}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"rpc": ["10.0.0.1:1"]}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"extra_args": ["--media-path", "/"]}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"extra_args": ["--ctx-size", "512"]}}, 400, "invalid_request"),
        ({"target": "demo", "options": {"extra_args": ["--temp", "--seed", "1"]}}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
    ],
)
def test_bad_targets(daemon: RunningDaemon, body: dict[str, object], status: int, code: str) -> None:
    answer = daemon.http.post("/api/v1/models/load", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_two_files_of_one_name_need_an_id(daemon: RunningDaemon, tmp_path: Path, talker: Path) -> None:
    other = tmp_path / "other" / talker.name
    other.parent.mkdir()
    other.write_bytes(talker.read_bytes())
    daemon.load(str(talker))
    taken = daemon.http.post("/api/v1/models/load", json={"target": str(other)})
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "model_id_taken")
    named = daemon.http.post("/api/v1/models/load", json={"target": str(other), "id": "second"})
    assert named.json()["id"] == "second"


def test_unload_ends_the_process_and_is_idempotent(daemon: RunningDaemon) -> None:
    daemon.load("demo")
    socket = Path(daemon.engine_socket("demo"))
    assert socket.is_socket()
    for _ in range(2):
        status = daemon.http.post("/api/v1/models/unload", json={"model": "demo"}).json()
        assert (status["state"], status["pid"]) == ("unloaded", None)
    assert not socket.exists()
    assert list((daemon.home / "children").iterdir()) == []


def test_unload_during_a_load_cancels_it(engine_binary: Path, tmp_path: Path) -> None:
    """A wrapper that answers for the engine but never starts it stands for a load that takes long."""
    wrapper = tmp_path / "llama-server"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = -m ] && exec sleep 600\nexec "{engine_binary}" "$@"\n')
    wrapper.chmod(0o755)
    outcome: list[tuple[int, str]] = []

    def load(daemon: RunningDaemon) -> None:
        answer = daemon.http.post("/api/v1/models/load", json={"target": "demo"})
        outcome.append((answer.status_code, answer.json()["error"]["code"]))

    with scratch_home() as home, running_daemon(home, wrapper) as daemon:
        loading = threading.Thread(target=load, args=(daemon,))
        loading.start()
        wait_until(lambda: daemon.model("demo")["pid"] is not None, "the engine's process is there")
        assert daemon.model("demo")["state"] == "loading"
        status = daemon.http.post("/api/v1/models/unload", json={"model": "demo"}).json()
        assert (status["state"], status["pid"]) == ("unloaded", None)
        loading.join(PATIENCE)
        assert outcome == [(503, "load_cancelled")]


def test_status_and_logs(daemon: RunningDaemon, engine_binary: Path) -> None:
    daemon.load("demo")
    status = daemon.http.get("/api/v1/status").json()
    assert status["pid"] == daemon.pid
    assert status["url"] == daemon.url
    assert status["engine"]["path"] == str(engine_binary)
    assert status["engine"]["build"]
    log: dict[str, str | int] = {
        "model": "demo",
        "lines": 1000,
    }  # the engine says that it is ready, and then writes its last lines
    wait_until(lambda: "listening" in daemon.http.get("/api/v1/logs", params=log).text, "the engine's own words")
    own = daemon.http.get("/api/v1/logs").text
    assert "engine_ready" in own
    missing = daemon.http.get("/api/v1/logs", params={"model": "nobody"})
    assert missing.json()["error"]["code"] == "model_not_found"


def test_following_a_log_shows_new_lines_and_ends_with_the_daemon(daemon: RunningDaemon) -> None:
    with daemon.http.stream("GET", "/api/v1/logs", params={"lines": 0, "follow": True}) as answer:
        lines = answer.iter_lines()
        daemon.load("demo")
        assert "engine_start" in next(line for line in lines if "model=demo" in line)
        assert daemon.http.post("/api/v1/shutdown").status_code == 202
        assert any("daemon_stopping" in line for line in lines)
    assert daemon.process.wait(PATIENCE) == 0


def test_a_footprint_is_shown_and_remembered_and_the_log_is_not_filled_by_it(
    daemon: RunningDaemon, talker: Path
) -> None:
    first = daemon.load(str(talker), ctx_size=4096, parallel=1)
    assert set(first["footprint"]) == {"CPU"}
    assert first["footprint"]["CPU"] > 1 << 20
    for number in range(3):
        assert daemon.chat("talker", f"hello {number}").status_code == 200
    log = daemon.http.get("/api/v1/logs", params={"model": "talker"}).text
    assert "CPU KV buffer size" in log
    assert "print_timing" in log
    assert "sampler params" not in log
    assert daemon.http.post("/api/v1/models/unload", json={"model": "talker"}).json()["footprint"] is None
    assert daemon.load("talker", ctx_size=4096, parallel=1)["footprint"] == first["footprint"]
    assert "-lv" not in psutil.Process(daemon.model("talker")["pid"]).cmdline()


def test_what_is_learned_can_be_read_while_the_daemon_runs_and_outlives_it(engine_binary: Path, talker: Path) -> None:
    with scratch_home() as home:
        with running_daemon(home, engine_binary) as daemon:
            footprint = daemon.load(str(talker))["footprint"]
            wait_until(lambda: _starts(home) == 1, "the start is written down")
        with running_daemon(home, engine_binary) as daemon:
            assert daemon.load(str(talker))["footprint"] == footprint
            wait_until(lambda: _starts(home) == 2, "the start is written down")


def test_a_damaged_database_does_not_keep_the_daemon_from_starting(engine_binary: Path, talker: Path) -> None:
    with scratch_home() as home:
        (home / "state.db").write_bytes(b"no database" * 1000)
        with running_daemon(home, engine_binary) as daemon:
            assert daemon.load(str(talker))["footprint"] is not None
        assert "store_damaged" in (home / "daemon-output.log").read_text()


def _starts(home: Path) -> int:
    with Database.read(home / "state.db") as database:
        return len(database.rows("SELECT * FROM load_times"))
