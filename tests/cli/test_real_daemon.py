"""The command line against the real daemon and a real engine, from nothing to nothing."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cli.conftest import Cli
from tests.cli.test_terminal import PROMPT, Terminal
from tests.support.daemon import wait_until
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine


@pytest.fixture
def real(tmp_path: Path, engine_binary: Path) -> Iterator[Cli]:
    """The command line with a scratch home; whatever daemon it started is ended by its pid."""
    cli = Cli(tmp_path, SUPERVISOR_LLAMA_SERVER=str(engine_binary))
    try:
        yield cli
    finally:
        pid = daemon_pid(cli)
        cli("stop")
        if pid is not None and not is_gone(pid):
            psutil.Process(pid).kill()


def daemon_pid(cli: Cli) -> int | None:
    """The pid in the endpoint file."""
    try:
        return int(json.loads((cli.state / "endpoint.json").read_text())["pid"])
    except FileNotFoundError:
        return None


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_everything_from_nothing_and_back(real: Cli) -> None:
    first = real("demo", "--port", "0", "--json").json()
    assert first["engine"]["path"] == real.env["SUPERVISOR_LLAMA_SERVER"]
    assert first["answer"].strip()
    assert first["tool_call"]["name"] == "get_weather"
    assert json.loads(first["tool_call"]["arguments"]) == {"city": "Paris"}

    started = real("ps", "--json").json()["started_at"]
    assert real("demo", "--json").json() == first
    assert real("ps", "--json").json()["started_at"] == started, "by the same daemon"

    [shown] = real("ps", "--json").json()["models"]
    assert (shown["id"], shown["state"]) == ("demo", "ready")
    assert real("load", "demo", "--json").json()["status"]["pid"] == shown["pid"]
    assert real("chat", "-m", "Who are you?").out.strip() == first["answer"].strip()
    assert real("logs", "demo", "-n", "1000").out.count("\n") > 5
    assert "daemon_ready" in real("logs").out

    assert real("unload", "demo").code == 0
    assert is_gone(shown["pid"])
    assert real("ps").out.splitlines()[0] == "no model is loaded"

    pid = daemon_pid(real)
    assert pid is not None
    assert real("stop").out == f"the daemon (pid {pid}) has stopped\n"
    assert is_gone(pid)
    assert daemon_pid(real) is None
    assert real("clean", "--keep-environment", "--yes").code == 0
    assert not real.state.exists()


def test_a_daemon_that_lets_requests_end_says_so_and_the_next_one_comes_after_it(
    real: Cli, scripted_model: ScriptedModel
) -> None:
    model = scripted_model("On and on. ", endless=True)
    loaded = real("load", str(model), "--id", "m", "--port", "0", "--json").json()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    first = daemon_pid(real)
    assert first is not None
    with httpx.stream("POST", f"{loaded['base_url']}/chat/completions", json=body, trust_env=False) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        psutil.Process(first).terminate()
        wait_until(lambda: "the daemon is stopping" in real("ps").out, "it says so")
        assert real("ps", "--json").json()["stopping"] is True
        assert daemon_pid(real) == first
        next_one = real.start("load", "demo", "--port", "0", "--json")
        assert real("stop").code == 0, "asked again it ends at once"
        assert is_gone(first)
        out, err = next_one.communicate(timeout=PATIENCE)
    assert next_one.returncode == 0, (out, err)
    assert json.loads(out)["model"] == "demo"
    assert daemon_pid(real) not in {None, first}


def test_a_plan_says_what_an_earlier_load_taught(real: Cli) -> None:
    def reasons(*arguments: str) -> list[str]:
        return [reason for reason in real("plan", *arguments, "--json").json()["why"] if "learned" in reason]

    before = real("plan", "demo", "--json").json()
    assert (before["learned"], reasons("demo")) == (False, [])
    held = real("load", "demo", "--port", "0", "--json").json()["status"]["footprint"]
    wait_until(lambda: bool(reasons("demo")), "the start is kept")
    after = real("plan", "demo", "--json").json()
    assert after["learned"]
    assert reasons("demo") == ["Compute buffers and reserve are learned: measured with this engine and these options."]
    (part,) = after["parts"]
    assert abs(part["total_bytes"] - part["reserve_bytes"] - held["CPU"]) < 1 << 16  # the log rounds
    assert part["reserve_bytes"] < before["parts"][0]["reserve_bytes"]
    assert reasons("demo", "-c", "8192") == [
        "Compute buffers and reserve are learned: scaled from a start of this engine with other options."
    ]
    assert reasons("demo", "--devices", "laptop-16gb") == []
    assert real("stop").code == 0
    assert real("plan", "demo", "--json").json()["parts"][0]["compute_bytes"] == part["compute_bytes"]


def test_loads_at_once_from_nothing_end_with_one_daemon(real: Cli) -> None:
    commands = [real.start("load", "demo", "--port", "0", "--json") for _ in range(3)]
    outputs = [command.communicate(timeout=PATIENCE)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0, 0]
    assert len({json.loads(output)["base_url"] for output in outputs}) == 1
    assert len({json.loads(output)["status"]["pid"] for output in outputs}) == 1


def test_ctrl_c_in_a_chat_frees_the_engine(real: Cli) -> None:
    assert real("load", "demo", "--port", "0").code == 0
    with Terminal(real, "chat") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("endless\n")
        terminal.wait_for("around")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("(cancelled)")
        wait_until(lambda: real("ps", "--json").json()["models"][0]["leases"] == 0, "the lease is given back")
        terminal.wait_for(PROMPT)
        terminal.type("/exit\n")
        assert terminal.end() == 0


def test_serve_in_the_foreground_ends_with_ctrl_c(real: Cli) -> None:
    serving = real.start("serve", "--port", "0")
    assert serving.stderr is not None
    try:
        while "daemon_ready" not in serving.stderr.readline():
            assert serving.poll() is None
        refused = real("serve", "--port", "0", "--json")
        assert (refused.code, refused.json()["error"]["code"]) == (1, "daemon_already_running")
        serving.send_signal(signal.SIGINT)
        assert serving.wait(PATIENCE) == 0
    finally:
        end(serving)


def test_a_taken_port_is_said_with_the_logs_end(real: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = real("load", "demo", "--port", str(port))
    assert shown.code == 1
    assert "[address_in_use]" in shown.err


def test_a_daemon_in_the_background_reads_the_configuration_of_the_working_folder(real: Cli) -> None:
    port = free_port()
    (real.folder / "supervisor.yaml").write_text(f"server: {{port: {port}}}\n")
    assert real("load", "demo", "--json").json()["base_url"] == f"http://127.0.0.1:{port}/v1"


def test_a_model_that_is_none_is_refused_with_words(real: Cli) -> None:
    (real.folder / "bad.gguf").write_bytes(b"not a model")
    for target in ("bad.gguf", "missing.gguf"):
        shown = real("load", target, "--port", "0")
        assert shown.code == 1
        assert target in shown.err
        assert "internal_error" not in shown.err


def end(process: subprocess.Popen[str]) -> None:
    """End it if it still runs, and close its pipes."""
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_start_runs_a_daemon_in_the_background_and_a_second_one_names_it(real: Cli, tmp_path: Path) -> None:
    first = real("start", "--port", "0", "--json").json()
    assert (first["pid"], real("start", "--json").json()) == (daemon_pid(real), first)
    port = first["base_url"].split(":")[2].removesuffix("/v1")
    (tmp_path / "elsewhere").mkdir()
    other = Cli(tmp_path / "elsewhere", SUPERVISOR_LLAMA_SERVER=real.env["SUPERVISOR_LLAMA_SERVER"])
    refused = other("serve", "--port", port)
    assert refused.code == 1
    assert f"127.0.0.1:{port} is taken by a daemon of this program (pid {first['pid']}, version" in refused.err
    assert f"--url http://127.0.0.1:{port}" in refused.err


def test_a_folder_with_one_model_is_that_model(real: Cli, tmp_path: Path, scripted_model: ScriptedModel) -> None:
    model = scripted_model("Hello.")
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "one.gguf").symlink_to(model)
    (folder / "mmproj-one.gguf").write_bytes(b"no model")
    loaded = real("load", "./models", "--port", "0", "--json")
    assert loaded.json()["model"] == "one", loaded.err
    (folder / "two.gguf").symlink_to(model)
    assert "holds 2 models; name one: one.gguf, two.gguf." in real("load", "./models").err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no model" in real("load", str(empty)).err


def test_models_tells_how_fast_each_would_be(real: Cli, tmp_path: Path, scripted_model: ScriptedModel) -> None:
    assert real("load", str(scripted_model("Hello.")), "--id", "small", "--port", "0").code == 0
    told = real("models", "--speed", "--json")
    assert told.code == 0, told.err
    speeds = told.json()["speeds"]
    assert speeds.keys() >= {"demo", "small"}
    speed = speeds["small"]["speed"]
    assert (speed["from"], speeds["small"]["error"]) == ("published", None)
    assert all(rate > 0 for rate in speed["decode_tokens_per_second"].values())
    lines = real("models", "--speed").out.splitlines()
    assert lines[0].endswith("SPEED t/s")
    assert any(line.startswith("small") and line.rstrip()[-1].isdigit() for line in lines)
    assert "SPEED" not in real("models").out


def test_bench_times_a_model_through_the_daemon(real: Cli) -> None:
    found = real(
        "bench", "demo", "--port", "0", "--depth", "0,600", "--at-once", "1,3", "--tokens", "8", "--json"
    ).json()
    assert [one["depth"] for one in found["depths"]] == [0, 600]
    assert found["depths"][1]["prompt_tokens"] == 600
    assert all(one["decode_tokens_per_second"] > 0 for one in found["depths"])
    assert [one["requests"] for one in found["at_once"]] == [1, 3]
    assert found["foretold"]["decode_tokens_per_second"]["0"] > 0
    shown = real("bench", "demo", "--depth", "0", "--at-once", "1", "--tokens", "8")
    assert "FORETOLD" in shown.out
