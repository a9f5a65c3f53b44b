"""A daemon is taken over while it works: clients, engines and what is known of them go on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.support.daemon import RunningDaemon, configuration, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.takeover.stage import ON_AND_ON, copies, log_of, reading, restart

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can a daemon be taken over while it runs"),
]

SERVER = Path(__file__).parents[1] / "fakes" / "openai_server.py"


@pytest.fixture(scope="module")
def settings(scripted_model: ScriptedModel) -> dict[str, Any]:
    endless = str(scripted_model(ON_AND_ON, endless=True, n_ctx=262144))
    models = {
        "endless": {"file": endless, "parallel": 2, "ctx_size": 262144},
        "single": {"file": endless, "parallel": 1, "ctx_size": 131072},
        "brief": {"file": str(scripted_model("Hello from here."))},
        "command": {
            "source": "command",
            "command": [sys.executable, str(SERVER), "--port", "${PORT}"],
            "memory": {"CPU": "100m"},
        },
    }
    return {"models": models}


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, settings: dict[str, Any]) -> Iterator[RunningDaemon]:
    """One daemon, which is taken over by every test."""
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        yield running


@pytest.fixture(autouse=True)
def none_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "daemon" in request.fixturenames:
        running: RunningDaemon = request.getfixturevalue("daemon")
        wait_until(lambda: not copies(running), "the copies have ended")


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_streams_engines_and_connections_go_on(daemon: RunningDaemon) -> None:
    before = daemon.load("endless"), daemon.load("brief"), daemon.load("command")
    place = daemon.url.removeprefix("http://")
    kept = http.client.HTTPConnection(place, timeout=PATIENCE)
    kept.request("GET", "/health")
    kept.getresponse().read()
    client = kept.sock.getsockname()
    with reading(daemon) as reader:
        assert restart(daemon) == {"status": "restarted", "pid": daemon.pid}
        assert len(copies(daemon)) == 1
        reader.has_more()
        assert daemon.model("endless")["leases"] == 1, "its lease is known to the new one"
        after = [daemon.model(model) for model in ("endless", "brief", "command")]
        for one, other in zip(before, after, strict=True):
            same = ("pid", "state", "n_ctx", "n_slots", "footprint", "load_seconds", "plan")
            assert {name: one[name] for name in same} == {name: other[name] for name in same}
            assert other["loaded_at"] == pytest.approx(one["loaded_at"], abs=1), "clocks drift apart by milliseconds"
        kept.request("GET", "/api/v1/status")
        answer = kept.getresponse()
        assert json.loads(answer.read())["pid"] == daemon.pid
        assert kept.sock.getsockname() == client, "the connection is the same"
        kept.close()
        assert said(daemon.chat("brief", "Hi")) == "Hello from here."
        assert said(daemon.chat("command", "Hi"))
        reader.has_more()
        assert reader.is_whole()
    wait_until(lambda: daemon.busy_slots("endless") == 0, "the slot is free")
    wait_until(lambda: daemon.model("endless")["leases"] == 0, "the lease is back")
    wait_until(lambda: "copy_ended" in log_of(daemon), "the copy is reaped")
    paths = [one["status"] for one in daemon.http.get("/api/v1/history").json()["requests"] if one["stream"]]
    assert paths[:1] == [499], "the copy's request is in the history"


def test_requests_that_wait_keep_their_turn(daemon: RunningDaemon) -> None:
    daemon.load("single")
    order: list[int] = []

    def ask(number: int) -> None:
        said(daemon.chat("single", "count", max_tokens=3))
        order.append(number)

    def waits(count: int) -> bool:
        return bool(daemon.model("single")["waiting"] == count)

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    with reading(daemon, "single") as reader:
        for waiting, thread in enumerate(asking, 1):
            thread.start()
            wait_until(partial(waits, waiting), "it waits")
        restart(daemon)
        assert daemon.model("single")["waiting"] == 3
        assert daemon.busy_slots("single") == 1
        reader.has_more()
        assert not order
    for thread in asking:
        thread.join()
    assert order == [0, 1, 2]


def test_a_stream_outlives_several(daemon: RunningDaemon) -> None:
    with reading(daemon) as first:
        restart(daemon)
        with reading(daemon) as second:
            restart(daemon)
            assert len(copies(daemon)) == 2
            first.has_more()
            second.has_more()
            assert daemon.model("endless")["leases"] == 2
            restart(daemon)
            first.has_more()
            assert first.is_whole()
        wait_until(lambda: daemon.model("endless")["leases"] == 1, "the second's lease is back")
        second.leave()
        first.has_more()
    wait_until(lambda: daemon.model("endless")["leases"] == 0, "the first's lease is back")
    assert daemon.busy_slots("endless") == 0


def test_what_people_have_set_stays(daemon: RunningDaemon) -> None:
    daemon.load("brief")
    assert daemon.http.post("/api/v1/models/pin", json={"model": "brief"}).status_code == 200
    restart(daemon)
    assert daemon.model("brief")["pinned"]
    assert daemon.http.post("/api/v1/models/unpin", json={"model": "brief"}).status_code == 200
    restart(daemon)
    assert not daemon.model("brief")["pinned"]


def test_lines_of_a_log_go_on(daemon: RunningDaemon) -> None:
    daemon.load("brief")
    asked = daemon.chat("brief", "hi", max_tokens=1)
    wait_until(lambda: not daemon.busy_slots("brief"), "the engine has said its last word")
    before = daemon.http.get("/api/v1/logs", params={"model": "brief", "lines": 20}).text
    assert asked.headers["x-request-id"] in before  # a note of the daemon's own
    restart(daemon)
    assert before in daemon.http.get("/api/v1/logs", params={"model": "brief", "lines": 500}).text


def test_an_engine_that_dies_is_told_to_a_copy(daemon: RunningDaemon) -> None:
    pid = daemon.load("endless")["pid"]
    with reading(daemon) as reader:
        restart(daemon)
        reader.has_more()
        os.kill(pid, signal.SIGKILL)
        assert reader.ended.wait(PATIENCE)
        assert isinstance(reader.error, dict)
        assert reader.error["code"] == "engine_lost"
        assert "signal 9" in reader.error["message"]
    assert daemon.load("endless")["pid"] != pid


def test_a_copy_that_dies_gives_its_slots_back(daemon: RunningDaemon) -> None:
    daemon.load("single")
    with reading(daemon, "single") as reader:
        restart(daemon)
        reader.has_more()
        (copy,) = copies(daemon)
        copy.kill()
        assert reader.ended.wait(PATIENCE)
    assert said(daemon.chat("single", "count", max_tokens=3))


def test_a_signal_does_it_too(daemon: RunningDaemon) -> None:
    times = log_of(daemon).count("daemon_ready")
    pid = daemon.load("brief")["pid"]
    os.kill(daemon.pid, signal.SIGUSR2)
    wait_until(lambda: log_of(daemon).count("daemon_ready") == times + 1, "the next image is ready")
    assert daemon.model("brief")["pid"] == pid


def test_a_model_that_loads_is_waited_for(daemon: RunningDaemon) -> None:
    daemon.http.post("/api/v1/models/unload", json={"model": "brief"})
    loading = threading.Thread(target=daemon.load, args=("brief",))
    loading.start()
    restart(daemon)
    loading.join()
    assert daemon.load("brief")["state"] == "ready"


def test_another_configuration_counts_after_the_requests(daemon: RunningDaemon, settings: dict[str, Any]) -> None:
    kept, changed = daemon.load("brief")["pid"], daemon.load("single")["pid"]
    file = daemon.home / "test.yaml"
    before = file.read_text()
    later = {**settings, "models": {**settings["models"], "single": {**settings["models"]["single"], "parallel": 2}}}
    with reading(daemon, "single") as reader:
        file.write_text(configuration(later))
        restart(daemon)
        reader.has_more()
        assert daemon.model("brief")["pid"] == kept
    wait_until(lambda: daemon.model("single")["n_slots"] == 2, "it is started anew")
    assert daemon.model("single")["pid"] != changed
    file.write_text(before)
    restart(daemon)
    wait_until(lambda: daemon.model("single")["n_slots"] == 1, "it is started anew")


def test_a_program_that_does_not_start_takes_nothing_over(daemon: RunningDaemon) -> None:
    pid = daemon.load("brief")["pid"]
    file = daemon.home / "test.yaml"
    before = file.read_text()
    started = psutil.Process(daemon.pid).cmdline()
    file.write_text(yaml.safe_dump({"models": {"x": {"no": "such"}}}))
    answer = daemon.http.post("/api/v1/restart")
    file.write_text(before)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "takeover_failed")
    assert "config_invalid" in error["message"]
    assert not copies(daemon)
    assert psutil.Process(daemon.pid).cmdline() == started
    assert daemon.model("brief")["pid"] == pid
    assert said(daemon.chat("brief", "Hi")) == "Hello from here."
    daemon.http.post("/api/v1/models/unload", json={"model": "brief"})
    assert daemon.load("brief")["pid"] != pid, "engines are started and ended again"


def test_the_answer_to_who_asked_ends_its_connection(daemon: RunningDaemon) -> None:
    """The next request on it is for the next image, and might come to the copy, which changes nothing any more."""
    with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as client:
        answer = client.post("/api/v1/restart")
        assert (answer.status_code, answer.headers.get("connection")) == (200, "close")
        assert client.post("/api/v1/logs/level", json={"level": "info"}).status_code == 200
        assert "connection" not in client.get("/api/v1/status").headers
