"""`supervisor engine …`, as a person or a script runs it."""

from __future__ import annotations

import json
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.installing import teller
from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.store import EngineStore, Manifest
from tests.llamacpp.fakes import WebServer, is_running, make_hanging_source, make_server, put_release
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with folders of its own and no engine."""
    own = {"HOME": str(tmp_path), "SUPERVISOR_HOME": str(tmp_path / "state"), "SUPERVISOR_ENGINES": str(tmp_path / "e")}
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **own}


def engine(env: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor", "engine", *arguments]
    return subprocess.run(command, env=dict(env), cwd=env["HOME"], capture_output=True, text=True, check=False)


def engine_json(env: Mapping[str, str], *arguments: str) -> Any:  # whatever the verb prints
    result = engine(env, *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def put(env: Mapping[str, str], name: str, build: int) -> Path:
    store = EngineStore(Path(env["SUPERVISOR_ENGINES"]))
    made = store.new_scratch("test") / "engine"
    make_server(made / "bin", build)
    store.place(made, Manifest(name, build, None, "cpu", "release", "5a", 1))
    return store.binary(name)


def test_which(env: dict[str, str], tmp_path: Path) -> None:
    server = make_server(tmp_path / "there", 77)
    env["SUPERVISOR_LLAMA_SERVER"] = str(server)
    assert engine_json(env, "which") == {
        "path": str(server),
        "source": "SUPERVISOR_LLAMA_SERVER",
        "build": 77,
        "commit": "abc1234",
        "backends": ["cpu", "cuda"],
        "capabilities": {
            "version": "version: 0.6.0-dev (build 77, commit abc1234)",
            "flags": ["--ctx-size", "--model", "-c", "-m"],
        },
        "skipped": [],
    }
    shown = engine(env, "which").stdout
    assert f"path      {server}\n" in shown
    assert "backends  cpu, cuda\n" in shown


def test_which_tells_what_it_passed_over(env: dict[str, str], tmp_path: Path) -> None:
    broken = make_server(tmp_path / "broken", text="#!/bin/sh\nexit 1\n")
    env["PATH"] = f"{broken.parent}:{make_server(tmp_path / 'good').parent}:{env['PATH']}"
    assert [one["path"] for one in engine_json(env, "which")["skipped"]] == [str(broken)]
    assert f"passed over {broken} (path)" in engine(env, "which").stderr


def test_which_without_an_engine(env: dict[str, str]) -> None:
    result = engine(env, "which", "--json")
    assert result.returncode == 1
    assert "engine_not_found" in result.stdout + result.stderr
    assert "engine install" in result.stdout + result.stderr


def test_list_use_previous_and_remove(env: dict[str, str]) -> None:
    assert "no llama-server is installed here" in engine(env, "list").stdout
    paths = {name: str(put(env, name, build)) for name, build in (("b1-cpu", 1), ("b2-cpu", 2))}
    for name in paths:
        engine_json(env, "use", name)
    listed = engine_json(env, "list")
    assert (listed["current"], listed["previous"]) == ("b2-cpu", "b1-cpu")
    assert [(e["name"], e["build"], e["path"], e["current"]) for e in listed["engines"]] == [
        ("b2-cpu", 2, paths["b2-cpu"], True),
        ("b1-cpu", 1, paths["b1-cpu"], False),
    ]
    assert engine_json(env, "use", "--previous") == {
        "current": "b1-cpu", "previous": "b2-cpu", "path": paths["b1-cpu"]
    }  # fmt: skip
    assert engine_json(env, "which")["sha256"] == "5a"
    assert "b2-cpu  2      -       cpu       release" in engine(env, "list").stdout
    assert engine_json(env, "remove", "b1-cpu")["current"] == "b2-cpu"


def test_a_binary_from_elsewhere_can_be_used(env: dict[str, str], tmp_path: Path) -> None:
    server = make_server(tmp_path / "elsewhere")
    assert engine_json(env, "use", str(server))["path"] == str(server)
    assert engine_json(env, "which")["source"] == "chosen"


@pytest.mark.parametrize(
    "arguments", [("use",), ("use", "x", "--previous"), ("use", "--previous"), ("build", "--from", ".")]
)
def test_what_makes_no_sense_is_a_usage_error(env: dict[str, str], arguments: tuple[str, ...]) -> None:
    assert engine(env, *arguments).returncode == 2


def test_unknown_names(env: dict[str, str]) -> None:
    for arguments in (("use", "x"), ("remove", "x"), ("which", "--engine", "x")):
        result = engine(env, *arguments)
        assert result.returncode == 1
        assert "engine list" in result.stderr


@pytest.mark.parametrize("verb", ["", "which", "list", "install", "build", "use", "remove"])
def test_help(env: dict[str, str], verb: str) -> None:
    result = engine(env, *([verb] if verb else []), "--help")
    assert result.returncode == 0
    assert "--json" in result.stdout or "install" in result.stdout


@pytest.mark.skipif(not (shutil.which("c++") and shutil.which("cmake")), reason="there is no C++ compiler or no cmake")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_build_leaves_nothing(env: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    source, started = make_hanging_source(tmp_path)
    command = [sys.executable, "-m", "supervisor", "engine", "build", "--from", str(source), "--backend", "cpu"]
    with subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        pid = int(started.read_text(encoding="ascii"))
        assert "process" in engine(env, "build", "--from", str(source)).stderr  # locked, and by whom
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert not is_running(pid)
    assert list((tmp_path / "e" / "scratch").iterdir()) == []


@pytest.mark.engine
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the archive made here is for Linux on x86_64"
)
def test_install_tries_the_engine_with_the_built_in_model(
    env: dict[str, str], tmp_path: Path, site: WebServer, real_server: Path
) -> None:
    put_release(site, real_server.resolve().parent, tmp_path)
    env["SUPERVISOR_RELEASES_URL"] = site.url
    made = engine_json(env, "install", "--route", "release", "--backend", "cpu")
    assert (made["source"], made["backend"], made["current"]) == ("release", "cpu", True)
    assert engine_json(env, "which")["path"] == made["path"]
    put_release(site, make_server(tmp_path / "answers-nothing").parent, tmp_path)
    failed = engine(env, "install", "--route", "release", "--backend", "cpu")
    assert failed.returncode == 1
    assert [one["path"] for one in engine_json(env, "list")["engines"]] == [made["path"]]


def test_progress_off_a_terminal_is_a_line_every_tenth() -> None:
    told: list[str] = []
    tell = teller(lambda text, _: told.append(text))
    tell(Progress("configure", None, "llama.cpp for cpu"))
    for step in range(100):
        tell(Progress("compile", step / 100, f"file {step}"))
    assert list(dict.fromkeys(told)) == ["configure: llama.cpp for cpu", *(f"compile {n} %" for n in range(0, 100, 10))]
