"""Workers with a GPU, of another build, that stand still; two models for one device; what the command line prints."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.workers.rpcserver import RpcProgram
from supervisor.workers.tensors import trim
from tests.support.daemon import RunningDaemon, environment, running_daemon, scratch_home, wait_until
from tests.support.gpu import DRIVER
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.support.vulkan import VulkanEngine
from tests.workers.stage import (
    LISTEN,
    Host,
    daemon_with_workers,
    events,
    hosts,
    wait_for,
    wait_for_device,
    wait_for_gateway,
)

ENGINE = {"ctx_size": 4096, "parallel": 1, "cache_ram": 0}


def asked(daemon: RunningDaemon, model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}


def ask(daemon: RunningDaemon, model: str) -> None:
    body = asked(daemon, model, max_tokens=4)
    answer = httpx.post(f"{daemon.url}/v1/chat/completions", json=body, timeout=PATIENCE, trust_env=False)
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def file(scripted_model: ScriptedModel) -> str:
    return str(scripted_model("one two three four five. ", endless=True, n_ctx=32768))


@pytest.mark.gpu
def test_a_worker_s_gpu_is_used_by_itself_and_no_more_once_it_is_lost(vulkan_engine: VulkanEngine, file: str) -> None:
    models = {"plain": {"file": file, **ENGINE}}
    with (
        scratch_home() as home,
        hosts(vulkan_engine.path, 1) as (host,),
        running_daemon(
            home, vulkan_engine.path, {**LISTEN, "models": models}, env=vulkan_engine.environment(0)
        ) as daemon,
    ):
        host.env |= {**DRIVER, **vulkan_engine.environment(1)}
        wait_for_gateway(daemon)
        host.join(daemon, "studio")
        host.lend("--no-cache")
        wait_for(daemon, "studio")
        assert not wait_for_device(daemon, "studio/Vulkan0")["shares_host"]
        body = asked(daemon, "plain", stream=True)
        with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as client:
            with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                found = events(answer.iter_lines())
                next(found)
                plan = daemon.model("plain")["plan"]
                assert plan["devices"] == ["studio/Vulkan0"]
                assert host.process is not None
                host.process.kill()
                assert list(found)[-1]["error"]["code"] == "rpc_worker_lost"
            host.process.wait()
            ask(daemon, "plain")
            assert daemon.model("plain")["plan"]["devices"] == []


@pytest.mark.engine
def test_a_worker_of_another_build_is_refused_by_name(engine_binary: Path, tmp_path: Path) -> None:
    other = tmp_path / "llama-server"
    lines = (
        "#!/bin/sh",
        '[ "$1" = --version ] && echo "version: 7 (abcdef0)" >&2 && exit 0',
        f'exec {shlex.quote(str(engine_binary))} "$@"',
    )
    other.write_text("\n".join(lines) + "\n")
    other.chmod(0o755)
    (tmp_path / "ggml-rpc-server").symlink_to(engine_binary.resolve().with_name("ggml-rpc-server"))
    with (
        scratch_home() as home,
        hosts(engine_binary, 1) as (host,),
        running_daemon(home, engine_binary, LISTEN) as daemon,
    ):
        wait_for_gateway(daemon)
        host.join(daemon, "older")
        host.lend("--no-cache", "--engine", str(other))
        found = wait_for(daemon, "older", "refused")
        assert "b7 (abcdef0)" in found["reason"]
        assert "install the same" in found["reason"]
        assert daemon.http.get("/api/v1/devices").json()["devices"] == []


@pytest.fixture(scope="module")
def pair(engine_binary: Path, file: str) -> Iterator[tuple[RunningDaemon, Host]]:
    far = {"file": file, "device": ["studio/CPU"], **ENGINE}
    with daemon_with_workers(engine_binary, ["studio"], {"models": {"one": far, "two": far}}) as (daemon, (host,)):
        yield daemon, host


@pytest.mark.engine
def test_another_model_for_a_device_has_the_first_one_leave(pair: tuple[RunningDaemon, Host]) -> None:
    daemon, host = pair
    for model, other in (("one", "two"), ("two", "one"), ("one", "two")):
        ask(daemon, model)
        assert daemon.model(other)["state"] == "unloaded"
        assert len(host.rpc_servers()) == 1


@pytest.mark.engine
def test_a_worker_that_stands_still_is_lost_and_comes_back(pair: tuple[RunningDaemon, Host]) -> None:
    daemon, host = pair
    body = asked(daemon, "one", stream=True)
    assert host.process is not None
    with (
        httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        found = events(answer.iter_lines())
        next(found)
        os.kill(host.process.pid, signal.SIGSTOP)
        try:
            error = list(found)[-1]["error"]
            assert error["code"] == "rpc_worker_lost"
            assert "said nothing" in wait_for(daemon, "studio", "away")["reason"]
        finally:
            os.kill(host.process.pid, signal.SIGCONT)
    wait_for(daemon, "studio")
    wait_for_device(daemon, "studio/CPU")
    ask(daemon, "one")


@pytest.mark.full
@pytest.mark.engine
def test_an_rpc_server_that_hangs_is_ended(pair: tuple[RunningDaemon, Host]) -> None:
    daemon, host = pair
    body = asked(daemon, "one", stream=True)
    with (
        httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        found = events(answer.iter_lines())
        next(found)
        (server,) = host.rpc_servers()
        server.suspend()
        error = list(found)[-1]["error"]
    assert error["code"] == "rpc_worker_lost"
    assert "no byte and no CPU time" in error["message"]
    wait_until(lambda: not server.is_running(), "it is ended, although it does not listen")
    ask(daemon, "one")


@pytest.mark.engine
def test_what_the_command_line_prints(pair: tuple[RunningDaemon, Host], engine_binary: Path) -> None:
    daemon, _ = pair

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-P", "-m", "supervisor", "worker", *words]
        env = environment(daemon.home, engine_binary)
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)

    listed = run("list")
    assert listed.stdout.split()[:2] == ["NAME", "STATE"]
    assert listed.stdout.splitlines()[1].split()[:3] == ["studio", "ready", "CPU"]
    invited = run("invite", "--host", "example.net", "--expires", "10m")
    assert invited.stdout.startswith("supw-")
    assert "10m" in invited.stderr
    missing = run("remove", "nobody")
    assert missing.returncode == 1
    assert "worker_not_found" in missing.stderr


@pytest.mark.engine
def test_a_device_that_is_not_there_cannot_be_lent(pair: tuple[RunningDaemon, Host]) -> None:
    _, host = pair
    found = subprocess.run(
        [sys.executable, "-P", "-m", "supervisor", "worker", "--device", "CUDA9"],
        env={**host.env, "SUPERVISOR_HOME": str(_copied(host))},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert found.returncode == 1
    assert "no device CUDA9" in found.stderr


def _copied(host: Host) -> Path:
    """Another state folder with the same membership: the first one's lock is taken."""
    folder = host.home / "other"
    (folder / "worker").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    for name in ("worker.json", "worker.pem", "worker.key"):
        (folder / "worker" / name).write_bytes((host.home / "worker" / name).read_bytes())
    return folder


def test_the_tensors_that_were_used_least_recently_go_first(tmp_path: Path) -> None:
    (tmp_path / "rpc").mkdir()
    for number, name in enumerate(("old", "middle", "new")):
        file = tmp_path / "rpc" / name
        file.write_bytes(bytes(100))
        os.utime(file, (1000 + number, 1000 + number))
    (tmp_path / "kept").write_bytes(bytes(1000))
    (tmp_path / "rpc" / "link").symlink_to(tmp_path / "kept")
    assert trim(tmp_path, 300) == 0
    assert trim(tmp_path, 199) == 200
    assert sorted(file.name for file in (tmp_path / "rpc").iterdir()) == ["link", "new"]
    assert (tmp_path / "kept").exists()
    assert trim(tmp_path / "none", 0) == 0


def test_the_command_of_an_rpc_server(tmp_path: Path) -> None:
    plain = RpcProgram(Path("/x/ggml-rpc-server"), {}, None, tmp_path).argv("CUDA0", 5000)
    assert plain[-7:] == ("/x/ggml-rpc-server", "-H", "127.0.0.1", "-p", "5000", "-d", "CUDA0")
    assert RpcProgram(Path("/x/y"), {}, tmp_path, tmp_path).argv("CPU", 1)[-1] == "-c"
