"""`devices` and `doctor`, with and without an engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon


def checks(found: Any) -> dict[str, tuple[str, str]]:
    return {check["name"]: (check["state"], check["message"]) for check in found["checks"]}


@pytest.fixture
def bare(tmp_path: Path) -> Cli:
    """A command line that finds no engine."""
    cli = Cli(tmp_path, PATH="/usr/bin:/bin", CUDA_VISIBLE_DEVICES="")
    for name in ("SUPERVISOR_LLAMA_SERVER", "LLAMA_SERVER_PATH"):
        cli.env.pop(name, None)
    return cli


@pytest.fixture
def equipped(tmp_path: Path, engine_binary: Path) -> Cli:
    return Cli(tmp_path, SUPERVISOR_LLAMA_SERVER=str(engine_binary))


def test_without_an_engine_the_host_is_shown(bare: Cli) -> None:
    shown = bare("devices")
    assert shown.code == 0
    assert shown.out.splitlines()[0].startswith("NAME  DEVICE")
    assert shown.out.splitlines()[-1].startswith("CPU   the host")
    assert "engine install" in shown.err


def test_devices_as_json(bare: Cli) -> None:
    (bare.folder / "s.yaml").write_text("devices: {reserve_mib: {cpu: 5}, engine_reserve_mib: {CPU: 7}}")
    found = bare("devices", "--json", "--config", "s.yaml").json()
    host = found["host"]
    assert host["total_bytes"] <= psutil.virtual_memory().total
    assert host["usable_bytes"] == host["available_bytes"] - (5 << 20)
    assert host["reserve_bytes"] == 7 << 20
    assert found["problems"][0]["probe"] == "engine"


@pytest.mark.engine
def test_devices_of_a_real_engine(equipped: Cli) -> None:
    (equipped.folder / "s.yaml").write_text('devices: {rpc: ["127.0.0.1:1"]}')
    shown = equipped("devices", "--config", "s.yaml")
    assert shown.code == 0
    assert "rpc 127.0.0.1:1: no worker answers" in shown.err
    assert "error" in equipped("devices", "--json", "--engine", "/nowhere").json()


@pytest.mark.engine
def test_doctor_is_content_with_a_good_machine(equipped: Cli) -> None:
    shown = equipped("doctor")
    assert shown.code == 0, shown.out
    assert all(re.match(r"ok  |warn|      fix: ", line) for line in shown.out.splitlines()), shown.out
    found = checks(equipped("doctor", "--json").json())
    assert equipped("doctor", "--json").json()["ok"] is True
    assert "back ends: cpu" in found["engine"][1]
    assert found["probe engine"][1].endswith(" ms")
    assert found["daemon"] == ("ok", "none runs; it starts when it is needed")


def test_doctor_names_what_is_broken(bare: Cli) -> None:
    (bare.folder / "supervisor.yaml").write_text("server: {prot: 1}")
    shown = bare("doctor", "--json")
    found = checks(shown.json())
    assert (shown.code, shown.json()["ok"]) == (1, False)
    assert found["engine"][0] == found["configuration"][0] == "fail"
    fixes = {one["name"]: one["fix"] for one in shown.json()["checks"]}
    assert "engine install" in fixes["engine"]
    assert "config check" in fixes["configuration"]
    assert all((one["fix"] is None) is (one["state"] == "ok") for one in shown.json()["checks"])
    assert "server.prot" in found["configuration"][1]
    assert found["python"][0] == "ok"
    assert bare("doctor").code == 1


def test_doctor_sees_folders_that_cannot_be(bare: Cli) -> None:
    (bare.folder / "file").write_text("in the way")
    bare.env["SUPERVISOR_HOME"] = str(bare.folder / "file" / "home")
    found = checks(bare("doctor", "--json").json())
    assert (found["folder state"][0], found["folder runtime"][0]) == ("fail", "ok")


def test_doctor_looks_at_the_daemon(bare: Cli, tmp_path: Path) -> None:
    with FakeDaemon(version="0.0.1") as other:
        other.write_endpoint(bare.state)
        state, message = checks(bare("doctor", "--json").json())["daemon"]
        assert state == "fail"
        assert "version 0.0.1 runs" in message
    with FakeDaemon() as same:
        same.write_endpoint(bare.state)
        assert checks(bare("doctor", "--json").json())["daemon"][0] == "ok"
        same.config["error"] = {"code": "config_invalid", "message": "x.yaml:1:1: no"}
        state, message = checks(bare("doctor", "--json").json())["daemon"]
        assert state == "warn"
        assert "x.yaml:1:1: no" in message
        same.config.update(error=None, restart_needed=["server.port", "engine.path"])
        state, message = checks(bare("doctor", "--json").json())["daemon"]
        assert (state, message.partition(";")[0]) == ("warn", "server.port, engine.path: changed")
    assert checks(bare("doctor", "--json", "--url", "http://127.0.0.1:1").json())["daemon"][0] == "fail"
