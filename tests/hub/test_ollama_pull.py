"""Downloads, lists and removal through Ollama's API, with a hub of the tests' own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ollama
import pytest

from tests.hub.conftest import SAID
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.hub import LocalHub

pytestmark = pytest.mark.engine


@pytest.fixture
def daemon(engine_binary: Path, hub: LocalHub, talker: Path) -> Iterator[RunningDaemon]:
    hub.add("owner/talker-GGUF", {"talker-Q4_0.gguf": talker.read_bytes()})
    with scratch_home() as home, running_daemon(home, engine_binary, env=hub.environment(home / "hf")) as running:
        yield running


def names(daemon: RunningDaemon) -> list[str]:
    return [model["name"] for model in daemon.http.get("/api/tags").json()["models"]]


@pytest.mark.parametrize("name", ["owner/talker-GGUF:Q4_0", "hf.co/owner/talker-GGUF:Q4_0"])
def test_a_model_is_pulled_listed_asked_and_deleted(daemon: RunningDaemon, name: str) -> None:
    with ollama.Client(host=daemon.url, trust_env=False) as client:
        lines = list(client.pull(name, stream=True))
        assert (lines[0].status, lines[-1].status) == ("pulling manifest", "success")
        assert "owner/talker-GGUF:Q4_0" in names(daemon)
        assert client.chat(name, [{"role": "user", "content": "hi"}]).message.content == SAID
        assert client.show(name).modelinfo
        assert client.delete(name).status == "success"
        assert daemon.http.get("/api/v1/disk").json()["models"] == []


def test_a_pull_may_answer_at_its_end(daemon: RunningDaemon) -> None:
    answer = daemon.http.post("/api/pull", json={"name": "owner/talker-GGUF", "stream": False})
    assert [json.loads(line) for line in answer.text.splitlines()] == [{"status": "success"}]


def test_a_pull_that_fails_says_so(daemon: RunningDaemon) -> None:
    missing = daemon.http.post("/api/pull", json={"model": "owner/nothing:Q4_0"})
    said: dict[str, Any] = missing.json()
    assert (missing.status_code, said["code"]) == (404, "repository_not_found")
    assert isinstance(said["error"], str)
