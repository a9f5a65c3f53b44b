"""Installations of llama-server over REST: shown, and chosen by name alone."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.api.engines import MakeRequest
from supervisor.cli.verbs import engine as verb
from tests.llamacpp.fakes import ASSET, WebServer, put_release, web_server
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = pytest.mark.engine


RELEASE = {"route": "release", "backend": "cpu"}
for_linux = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the archive made here is for Linux on x86_64"
)


@pytest.fixture
def site() -> Iterator[WebServer]:
    """Where the daemon looks for official builds."""
    with web_server() as server:
        yield server


@pytest.fixture
def daemon(engine_binary: Path, site: WebServer) -> Iterator[RunningDaemon]:
    """A daemon with two installations, of which the older one is chosen; no variable names one."""
    with scratch_home() as home:
        for name, build in (("older", 11433), ("newer", 11434)):
            install(home / "engines" / name, engine_binary, build)
        (home / "engines" / "chosen.json").write_text(json.dumps({"current": "older", "previous": None}))
        env = {"SUPERVISOR_ENGINES": str(home / "engines"), "SUPERVISOR_LLAMA_SERVER": ""}
        env |= {"SUPERVISOR_RELEASES_URL": site.url}
        with running_daemon(home, engine_binary, env=env) as running:
            yield running


def install(folder: Path, engine: Path, build: int) -> None:
    """A folder as an installation leaves it, around the engine of the tests."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "llama-server").symlink_to(engine)
    facts = {"build": build, "commit": "abc", "backend": "cpu", "source": "registry", "sha256": "", "made_at": 1}
    (folder / "manifest.json").write_text(json.dumps(facts))


def current(daemon: RunningDaemon) -> list[str]:
    listed = daemon.http.get("/api/v1/engines").json()["engines"]
    assert [one["name"] for one in listed] == ["newer", "older"]
    return [one["name"] for one in listed if one["current"]]


def test_another_one_is_used_from_then_on(daemon: RunningDaemon) -> None:
    assert current(daemon) == ["older"]
    answer = daemon.http.post("/api/v1/engines/use", json={"name": "newer"}).json()["engines"]
    assert [(one["name"], one["current"], one["previous"]) for one in answer] == [
        ("newer", True, False),
        ("older", False, True),
    ]
    assert current(daemon) == ["newer"]
    assert "/engines/newer/" in daemon.http.get("/api/v1/status").json()["engine"]["path"]
    assert daemon.load("demo")["state"] == "ready"


@pytest.mark.parametrize("name", ["nothing", "/bin/sh", "../older", "older/../newer", "."])
def test_what_is_not_in_the_list_is_not_used(daemon: RunningDaemon, name: str) -> None:
    answer = daemon.http.post("/api/v1/engines/use", json={"name": name})
    assert answer.json()["error"]["code"] == "engine_not_found"
    assert current(daemon) == ["older"]


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


@for_linux
def test_another_one_is_installed_and_told_as_it_goes(
    daemon: RunningDaemon, site: WebServer, engine_binary: Path, tmp_path: Path
) -> None:
    put_release(site, engine_binary.resolve().parent, tmp_path)
    asked = daemon.http.stream("POST", "/api/v1/engines", json=RELEASE, headers={"accept": "text/event-stream"})
    with asked as answer:
        *steps, last = list(events(answer.iter_lines()))
    assert {step["state"] for step in steps} == {"installing"}
    assert last["state"] == "done"
    (made,) = [one for one in last["engines"] if one["source"] == "release"]
    assert not made["current"], "it is beside the others until somebody chooses it"
    daemon.http.post("/api/v1/engines/use", json={"name": made["name"]})
    assert daemon.load("demo")["state"] == "ready"


def test_what_cannot_be_installed_says_why(daemon: RunningDaemon) -> None:
    answer = daemon.http.post("/api/v1/engines", json=RELEASE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_install_failed")
    streamed = daemon.http.post("/api/v1/engines", json=RELEASE, headers={"accept": "text/event-stream"})
    last = list(events(streamed.iter_lines()))[-1]
    assert (last["state"], last["error"]["code"]) == ("failed", "engine_install_failed")


@for_linux
def test_who_leaves_ends_the_installation(
    daemon: RunningDaemon, site: WebServer, engine_binary: Path, tmp_path: Path
) -> None:
    put_release(site, engine_binary.resolve().parent, tmp_path)
    whole = site.replies[f"/{ASSET}"]
    site.replies[f"/{ASSET}"] = replace(whole, body=whole.body[:1000], promised=len(whole.body), endless=True)
    asked = daemon.http.stream("POST", "/api/v1/engines", json=RELEASE, headers={"accept": "text/event-stream"})
    with asked as answer:
        lines = events(answer.iter_lines())
        next(lines)
        assert code(daemon) == "build_locked"
    site.replies.clear()
    wait_until(lambda: code(daemon) == "engine_install_failed", "the lock is free")


def code(daemon: RunningDaemon) -> str:
    return str(daemon.http.post("/api/v1/engines", json=RELEASE).json()["error"]["code"])


def test_nothing_is_installed_unless_it_is_said_what(daemon: RunningDaemon) -> None:
    for body in ({}, {"backend": "cpu"}, {"route": "release"}, {"backend": "/bin/sh", "route": "source"}):
        answer = daemon.http.post("/api/v1/engines", json=body)
        assert answer.json()["error"]["code"] == "invalid_request"


def test_the_choices_are_those_of_the_command() -> None:
    schema = MakeRequest.model_json_schema()["properties"]
    assert tuple(schema["backend"]["enum"]) == verb.BACKENDS
    assert tuple(schema["route"]["enum"]) == tuple(verb.ROUTES)
