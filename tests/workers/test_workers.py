"""A model on another host's device: real workers, real RPC servers, real TLS, all on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.daemon import RunningDaemon, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.workers.stage import (
    Host,
    daemon_with_workers,
    events,
    invited,
    wait_for,
    wait_for_device,
    wait_for_gateway,
    workers,
)

pytestmark = pytest.mark.engine

ENGINE = {"ctx_size": 16384, "parallel": 1, "cache_ram": 0}


class Stage:
    """A daemon with one worker, and the models `far` (on the worker) and `near` (on the processor)."""

    def __init__(self, daemon: RunningDaemon, host: Host) -> None:
        self.daemon = daemon
        self.host = host
        self.http = httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False)

    def ask(self, model: str) -> httpx.Response:
        """One short request."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
        return self.http.post("/v1/chat/completions", json=body)

    @contextlib.contextmanager
    def stream(self, model: str) -> Iterator[Iterator[dict[str, Any]]]:
        """An endless answer."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        with self.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            yield events(answer.iter_lines())

    def clear(self) -> None:
        """Nothing is loaded, the worker runs and is there."""
        if self.host.process is None or self.host.process.poll() is not None:
            self.host.lend("--no-cache")
        for name in ("far", "near"):
            self.http.post("/api/v1/models/unload", json={"model": name, "now": True})
        wait_for(self.daemon, "studio")
        wait_until(lambda: workers(self.daemon)["studio"]["devices"][0]["engine"] is None, "the device is free")
        wait_until(lambda: not self.host.rpc_servers(), "its RPC server has ended")


@pytest.fixture(scope="module")
def shown(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[Stage]:
    file = str(scripted_model("one two three four five. ", endless=True, n_ctx=32768))
    models = {"far": {"file": file, "device": ["studio/CPU"], **ENGINE}, "near": {"file": file, **ENGINE}}
    with daemon_with_workers(engine_binary, ["studio"], {"models": models}) as (daemon, (host,)):
        stage = Stage(daemon, host)
        yield stage
        stage.http.close()


@pytest.fixture(autouse=True)
def cleared(shown: Stage) -> None:
    shown.clear()


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def error_of(found: Iterator[dict[str, Any]]) -> dict[str, Any]:
    last = list(found)[-1]
    assert "error" in last, last
    error: dict[str, Any] = last["error"]
    return error


def test_a_model_on_a_worker_says_what_it_says_here(shown: Stage) -> None:
    assert said(shown.ask("far")) == said(shown.ask("near"))
    status = shown.daemon.model("far")
    assert status["plan"]["devices"] == ["studio/CPU"]
    (device,) = workers(shown.daemon)["studio"]["devices"]
    assert device["engine"] == status["pid"]
    assert len(shown.host.rpc_servers()) == 1


def test_an_rpc_server_lives_as_long_as_its_engine(shown: Stage) -> None:
    shown.ask("far")
    (server,) = shown.host.rpc_servers()
    assert "-H 127.0.0.1" in " ".join(server.cmdline())
    ignored = int(Path(f"/proc/{server.pid}/status").read_text().split("SigIgn:\t")[1].split()[0], 16)
    assert ignored >> (signal.SIGPIPE - 1) & 1, "an engine that leaves in the middle must not end it"
    shown.http.post("/api/v1/models/unload", json={"model": "far", "now": True}).raise_for_status()
    psutil.wait_procs([server], timeout=PATIENCE)
    assert not server.is_running()


def test_a_program_that_is_no_engine_is_hung_up_on(shown: Stage) -> None:
    port = int(wait_for_device(shown.daemon, "studio/CPU")["endpoint"].rpartition(":")[2])
    for loaded in (False, True):
        if loaded:
            assert shown.ask("far").status_code == 200
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as stranger:
            stranger.sendall(b"\x0e" + bytes(8))  # llama.cpp's HELLO
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    assert shown.ask("far").status_code == 200


def test_an_rpc_server_that_dies_ends_the_engine_at_once(shown: Stage) -> None:
    assert shown.ask("near").status_code == 200
    with shown.stream("far") as found, shown.stream("near") as others:
        next(found)
        next(others)
        pid = shown.daemon.model("far")["pid"]
        shown.host.rpc_servers()[0].kill()
        error = error_of(found)
        assert error["code"] == "rpc_worker_lost"
        assert "studio" in error["message"]
        assert all("error" not in next(others) for _ in range(20)), "another engine is not touched"
    assert said(shown.ask("far")), "a new RPC server is there for the next engine"
    assert shown.daemon.model("far")["pid"] != pid


def test_a_worker_that_is_killed_leaves_nothing_and_comes_back(shown: Stage) -> None:
    assert shown.host.process is not None
    with shown.stream("far") as found:
        next(found)
        servers = shown.host.rpc_servers()
        shown.host.process.kill()
        assert error_of(found)["code"] == "rpc_worker_lost"
    psutil.wait_procs(servers, timeout=PATIENCE)
    assert not any(one.is_running() for one in servers)
    shown.host.process.wait()
    assert wait_for(shown.daemon, "studio", "away")["reason"]
    refused = shown.ask("far")
    assert refused.status_code >= 400
    assert refused.json()["error"]["code"] == "launch_option_refused", refused.text
    shown.host.lend("--no-cache")
    wait_for(shown.daemon, "studio")
    wait_for_device(shown.daemon, "studio/CPU")
    assert said(shown.ask("far"))


def test_a_gateway_that_is_killed_comes_back_with_all_who_had_joined(shown: Stage) -> None:
    (gateway,) = [one for one in psutil.Process(shown.daemon.pid).children() if "workers" in " ".join(one.cmdline())]
    with shown.stream("far") as found:
        next(found)
        gateway.kill()
        assert "error" in list(found)[-1]
    wait_for_gateway(shown.daemon)
    wait_for(shown.daemon, "studio")
    wait_for_device(shown.daemon, "studio/CPU")
    assert said(shown.ask("far"))


def test_streams_and_engines_on_workers_go_on_through_a_take_over(shown: Stage) -> None:
    with shown.stream("far") as found:
        next(found)
        pid = shown.daemon.model("far")["pid"]
        answer = httpx.post(f"{shown.daemon.url}/api/v1/restart", timeout=PATIENCE, trust_env=False)
        assert answer.status_code == 200, answer.text
        assert all("error" not in next(found) for _ in range(50))
    wait_for(shown.daemon, "studio")
    assert shown.daemon.model("far")["pid"] == pid
    assert said(shown.ask("far"))
    shown.host.rpc_servers()[0].kill()
    wait_until(lambda: shown.daemon.model("far")["state"] != "ready", "the new image hears of a loss")


def test_who_is_removed_is_let_in_no_more(shown: Stage) -> None:
    with shown.stream("far") as found:
        next(found)
        assert shown.http.delete("/api/v1/workers/studio").status_code == 200
        assert error_of(found)["code"] == "rpc_worker_lost"
    assert shown.host.process is not None
    assert shown.host.process.wait(PATIENCE) != 0
    assert "worker_refused" in shown.host.output.read_text()
    assert shown.http.delete("/api/v1/workers/studio").json()["error"]["code"] == "worker_not_found"
    again = shown.host.run("worker", "join", invited(shown.daemon), "--json")
    assert json.loads(again.stdout)["error"]["code"] == "worker_unusable", "it is a worker still, by its own folder"
    for file in (shown.host.home / "worker").glob("worker.*"):
        file.unlink()
    shown.host.join(shown.daemon, "studio")


def test_a_second_worker_of_the_same_folder_is_refused(shown: Stage) -> None:
    found = shown.host.run("worker", "--json")
    assert json.loads(found.stdout)["error"]["code"] == "worker_unusable"
    assert wait_for(shown.daemon, "studio")


def test_a_worker_ends_when_it_is_told_to(shown: Stage) -> None:
    shown.ask("far")
    servers = shown.host.rpc_servers()
    assert shown.host.process is not None
    os.kill(shown.host.process.pid, signal.SIGTERM)
    assert shown.host.process.wait(PATIENCE) == 0
    assert not any(one.is_running() for one in servers)
