"""Installations of llama-server over REST: shown, and chosen by name alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

pytestmark = pytest.mark.engine


@pytest.fixture
def daemon(engine_binary: Path) -> Iterator[RunningDaemon]:
    """A daemon with two installations, of which the older one is chosen; no variable names one."""
    with scratch_home() as home:
        for name, build in (("older", 11433), ("newer", 11434)):
            install(home / "engines" / name, engine_binary, build)
        (home / "engines" / "chosen.json").write_text(json.dumps({"current": "older", "previous": None}))
        env = {"SUPERVISOR_ENGINES": str(home / "engines"), "SUPERVISOR_LLAMA_SERVER": ""}
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
