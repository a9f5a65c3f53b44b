"""The configuration of a running daemon: taken over, or refused whole; streams go on."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.daemon import RunningDaemon, configuration, environment, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine


@pytest.fixture
def home() -> Iterator[Path]:
    with scratch_home() as folder:
        yield folder


def models(talker: Path, **changed: Mapping[str, Any]) -> dict[str, Any]:
    plain = {"file": str(talker), "parallel": 2, "ctx_size": 8192}
    found = {"one": {**plain, **changed.get("one", {})}, "two": {**plain, **changed.get("two", {})}}
    return {name: model for name, model in found.items() if not model.get("gone")}


def write(daemon: RunningDaemon, settings: Mapping[str, Any] | str) -> None:
    """In place of the file, at once, as careful editors do."""
    text = settings if isinstance(settings, str) else configuration(settings)
    new = daemon.home / "new.yaml"
    new.write_text(text)
    new.replace(daemon.home / "test.yaml")


def reload(daemon: RunningDaemon, settings: Mapping[str, Any] | str) -> httpx.Response:
    write(daemon, settings)
    return daemon.http.post("/api/v1/config/reload")


def config(daemon: RunningDaemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.http.get("/api/v1/status").json()["config"]
    return found


QUIET = {"server": {"watch_config": False}}


def test_a_stream_goes_on_through_a_reload_that_restarts_its_model(
    home: Path, engine_binary: Path, talker: Path
) -> None:
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        daemon.load("one"), daemon.load("two")
        before = {name: daemon.model(name)["pid"] for name in ("one", "two")}
        body = {
            "model": "one",
            "stream": True,
            "messages": [{"role": "user", "content": "endless"}],
            "max_tokens": 3000,
        }
        with daemon.http.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.iter_lines()
            first = next(line for line in lines if line)
            answer = reload(daemon, {**QUIET, "models": models(talker, one={"parallel": 4})})
            assert answer.json()["relaunched"] == ["one"]
            assert daemon.model("one")["leases"] == 1
            said = [first, *(line for line in lines if line)]
        assert said[-1] == "data: [DONE]"
        last = json.loads(said[-2].removeprefix("data: "))
        assert not any('"error"' in line for line in said), said[-3:]
        assert last["choices"][0]["finish_reason"] == "length"
        wait_until(lambda: daemon.model("one")["state"] == "ready" and daemon.model("one")["n_slots"] == 4, "restart")
        assert daemon.model("one")["pid"] != before["one"]
        assert daemon.model("two")["pid"] == before["two"]


def test_how_calls_are_looked_for_changes_in_the_run(home: Path, engine_binary: Path, talker: Path) -> None:
    tool = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object"}}}
    asked = {"tools": [tool], "max_tokens": 5}
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        pid = daemon.load("one")["pid"]

        def is_watched() -> bool:
            before = watched(daemon)
            assert daemon.chat("one", "hello", **asked).status_code == 200
            return watched(daemon) > before

        assert is_watched()
        off = {**QUIET, "server": {**QUIET.get("server", {}), "tool_calls": "off"}}
        assert reload(daemon, {**off, "models": models(talker)}).json()["relaunched"] == []
        assert not is_watched()
        assert reload(daemon, {**off, "models": models(talker), "defaults": {"tool_calls": "recover"}}).json()[
            "adjusted"
        ] == ["one", "two"]
        assert is_watched()
        assert daemon.model("one")["pid"] == pid


def watched(daemon: RunningDaemon) -> int:
    counts: int = daemon.tool_calls().get("one", {"answers": 0})["answers"]
    return counts


def test_a_bad_file_changes_nothing_and_says_why(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        pid = daemon.load("one")["pid"]
        started = config(daemon)
        answer = reload(daemon, "models:\n  one: {file: other.gguf}\n  two: {fiel: x.gguf}\n")
        assert answer.status_code == 422
        error = answer.json()["error"]
        assert error["code"] == "config_invalid"
        assert "test.yaml:3:9: models.two.fiel: unknown key; did you mean file?" in error["message"]
        assert config(daemon)["error"]["message"] == error["message"]
        assert config(daemon)["loaded_at"] == started["loaded_at"]
        assert daemon.model("one")["pid"] == pid
        assert daemon.model("one")["path"] == str(talker)
        assert "config_refused" in daemon.http.get("/api/v1/logs?lines=20").text
        assert reload(daemon, {**QUIET, "models": models(talker)}).status_code == 200
        assert config(daemon)["error"] is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"file": "gone.gguf"}, "does not exist"),
        ({"extra_args": ["--no-such-option"]}, "no option --no-such-option"),
    ],
)
def test_a_launch_that_would_fail_is_refused_before_the_engine_is_ended(
    home: Path, engine_binary: Path, talker: Path, change: Mapping[str, Any], why: str
) -> None:
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        pid = daemon.load("one")["pid"]
        answer = reload(daemon, {**QUIET, "models": models(talker, one=change)})
        assert answer.status_code == 422
        assert why in answer.json()["error"]["message"]
        assert daemon.model("one")["pid"] == pid


def test_models_come_and_go(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        pid = daemon.load("two")["pid"]
        new = {"three": {"file": str(talker), "aliases": ["3"]}}
        answer = reload(daemon, {**QUIET, "models": {**models(talker, two={"gone": True}), **new}}).json()
        assert (answer["added"], answer["removed"], answer["relaunched"]) == (["three"], ["two"], [])
        assert daemon.chat("two", "hello").status_code == 404
        assert daemon.chat("3", "hello").status_code == 200
        wait_until(lambda: not psutil.pid_exists(pid), "the end of the removed model's engine")


def test_another_engine_takes_the_place_of_every_loaded_one(home: Path, engine_binary: Path, talker: Path) -> None:
    (home / "other-server").symlink_to(engine_binary)
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        pid = daemon.load("one")["pid"]
        wrong = reload(daemon, {**QUIET, "models": models(talker), "engine": {"path": str(home / "none")}})
        assert wrong.json()["error"]["code"] in {"engine_not_found", "engine_unusable"}
        assert daemon.model("one")["pid"] == pid
        answer = reload(daemon, {**QUIET, "models": models(talker), "engine": {"path": str(home / "other-server")}})
        assert answer.json()["relaunched"] == ["one", "two", "demo"]
        wait_until(lambda: daemon.model("one")["pid"] not in {pid, None}, "the other engine")
        assert psutil.Process(daemon.model("one")["pid"]).cmdline()[0] == str(home / "other-server")
        assert daemon.model("two")["state"] == "unloaded"


def test_what_needs_a_restart_is_named(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        server = {"watch_config": False, "max_body_mib": 1, "api_keys": ["a-key-from-now-on"]}
        assert reload(daemon, {"server": server}).json()["restart_needed"] == ["server.max_body_mib"]
        assert daemon.http.get("/api/v1/status").status_code == 401
        daemon.http.headers["authorization"] = "Bearer a-key-from-now-on"
        assert config(daemon)["restart_needed"] == ["server.max_body_mib"]
        assert reload(daemon, QUIET).json()["restart_needed"] == []


def test_a_changed_file_and_sighup_are_noticed(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, {"models": models(talker)}) as daemon:

        def ids() -> set[str]:
            return {model["id"] for model in daemon.http.get("/api/v1/models").json()["models"]}

        write(daemon, {"models": models(talker, two={"gone": True})})
        wait_until(lambda: ids() == {"one", "demo"}, "the watched file")
        write(daemon, "models: 5")
        wait_until(lambda: config(daemon)["error"] is not None, "the refusal")
        write(daemon, {**QUIET, "models": models(talker, two={"gone": True})})
        wait_until(lambda: config(daemon)["error"] is None, "the file without a fault")
        write(daemon, {**QUIET, "models": models(talker)})
        os.kill(daemon.pid, signal.SIGHUP)
        wait_until(lambda: ids() == {"one", "two", "demo"}, "SIGHUP")


def test_models_that_come_to_the_folder_are_noticed(home: Path, engine_binary: Path, talker: Path) -> None:
    (home / "shelf").mkdir()
    with running_daemon(home, engine_binary, {"models_dir": "shelf", "defaults": {"ctx_size": 4096}}) as daemon:
        assert daemon.chat("newcomer", "hello").status_code == 404
        shutil.copy(talker, home / "shelf" / "newcomer.gguf")
        wait_until(lambda: daemon.chat("newcomer", "hello").status_code == 200, "the new file")
        assert daemon.model("newcomer")["n_ctx"] == 4096
        daemon.http.post("/api/v1/models/unload", json={"model": "newcomer"})
        (home / "shelf" / "newcomer.gguf").unlink()
        wait_until(lambda: daemon.chat("newcomer", "hello").status_code == 404, "the end of the file")


def has_slots(daemon: RunningDaemon, count: int) -> bool:
    return bool(daemon.model("one")["n_slots"] == count)


def test_no_request_is_lost_while_the_launch_changes_again_and_again(
    home: Path, engine_binary: Path, talker: Path
) -> None:
    """Four clients that never pause, six reloads under them."""
    with running_daemon(home, engine_binary, {**QUIET, "models": models(talker)}) as daemon:
        over = threading.Event()

        def client(number: int) -> list[int]:
            found = []
            while not over.is_set():
                found.append(daemon.chat("one", f"hello {number}", max_tokens=20).status_code)
            return found

        with ThreadPoolExecutor(4) as clients:
            asked = [clients.submit(client, number) for number in range(4)]
            try:
                for turn in range(6):
                    count = 2 if turn % 2 else 4
                    changed = reload(daemon, {**QUIET, "models": models(talker, one={"parallel": count})})
                    assert changed.json()["relaunched"] == ["one"], changed.text
                    wait_until(partial(has_slots, daemon, count), "the engine with new options")
            finally:
                over.set()
            answers = [status for one in asked for status in one.result()]
        assert set(answers) == {200}
        assert len(answers) >= 12


def test_preloaded_filtered_and_grouped_models(home: Path, engine_binary: Path, talker: Path) -> None:
    """Policies of the configuration at work: preload, a group, filters, an idle limit."""
    settings = {
        **QUIET,
        "defaults": {"filters": {"set": {"max_tokens": 3}}},
        "models": models(talker, one={"preload": True}, two={"filters": {"strip": ["stop"]}, "ttl": 0.5}),
        "groups": {"either": {"members": ["one", "two"]}},
    }
    with running_daemon(home, engine_binary, settings) as daemon:
        wait_until(lambda: daemon.model("one")["state"] == "ready", "the preloaded model")
        plan = daemon.http.post("/api/v1/plan", json={"target": "two"}).json()
        assert plan["evict_models"] == ["one"]
        daemon.http.post("/api/v1/models/pin", json={"model": "one"})
        refused = daemon.http.post("/api/v1/plan", json={"target": "two"}).json()
        assert (refused["fits"], refused["later"], refused["blocking_models"]) == (False, True, ["one"])
        assert daemon.chat("two", "hello").json()["error"]["message"] == refused["message"]
        daemon.http.post("/api/v1/models/unpin", json={"model": "one"})
        answer = daemon.chat("two", "hello", max_tokens=50, stop=["Hello"]).json()
        assert answer["usage"]["completion_tokens"] == 3
        assert answer["choices"][0]["message"]["content"]
        assert daemon.model("one")["state"] == "unloaded"
        wait_until(lambda: daemon.model("two")["state"] == "unloaded", "the idle limit")


_IN_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_daemon_whose_terminal_is_closed_ends(home: Path, engine_binary: Path) -> None:
    master, slave = pty.openpty()
    serve = [sys.executable, "-P", "-m", "supervisor", "serve", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_ITS_TERMINAL, *serve],
        stdin=slave,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(home, engine_binary),
        cwd=home,
        start_new_session=True,
    )
    os.close(slave)
    try:
        wait_until((home / "endpoint.json").exists, "the daemon")
        daemon = httpx.Client(base_url=json.loads((home / "endpoint.json").read_text())["url"], trust_env=False)
        first = daemon.get("/api/v1/status").json()["config"]["loaded_at"]
        process.send_signal(signal.SIGHUP)  # while the terminal is there, that means: read the configuration
        wait_until(lambda: daemon.get("/api/v1/status").json()["config"]["loaded_at"] > first, "SIGHUP")
        daemon.close()
        os.close(master)
        assert process.wait(PATIENCE) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
