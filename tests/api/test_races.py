"""Races that managers of many models have been seen to lose, with real engines of which one may be loaded at a time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

WORDS = {"a": "I am a.", "b": HELLO, "c": "I am c."}
ROUNDS = 40  # of a load and an unload by each of the crowd
NAMES = tuple(WORDS)


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, scripted_model: ScriptedModel, talker: Path) -> Iterator[RunningDaemon]:
    """Three models, each with words of its own; `a` is preloaded and ends after a second; `b` can talk without end."""
    files = {"a": scripted_model(WORDS["a"]), "b": talker, "c": scripted_model(WORDS["c"])}
    models: dict[str, Any] = {name: {"file": str(files[name]), "parallel": 2} for name in NAMES}
    for model in models.values():
        model |= {"ctx_size": 32768, "threads": 1}
    models["a"] |= {"preload": True, "ttl": 1.0}
    groups = {"one at a time": {"members": list(NAMES)}}
    settings: dict[str, Any] = {"server": {"watch_config": False}, "models": models, "groups": groups}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        assert running.http.post("/api/v1/config/reload").status_code == 200  # while the preloaded one loads
        wait_until(lambda: running.model("a")["state"] == "ready", "the preloaded model")
        assert starts(running) == 1, "a preload and a reload together load once"
        yield running


def starts(daemon: RunningDaemon) -> int:
    """How many engines were started."""
    return (daemon.home / "daemon-output.log").read_text().count("engine_start ")


def says(daemon: RunningDaemon, model: str) -> str:
    answer = daemon.chat(model, "Hi")
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def loaded(daemon: RunningDaemon) -> list[str]:
    return [name for name in NAMES if daemon.model(name)["pid"] is not None]


def test_two_models_asked_for_at_once_while_a_third_is_idle_are_both_answered(daemon: RunningDaemon) -> None:
    assert says(daemon, "a") == WORDS["a"]
    with ThreadPoolExecutor(2) as both:
        assert list(both.map(lambda name: says(daemon, name), "bc")) == [WORDS["b"], WORDS["c"]]


def test_a_stream_goes_on_while_another_model_waits_for_its_room(daemon: RunningDaemon) -> None:
    body = {"model": "b", "messages": [{"role": "user", "content": "endless"}], "stream": True, "max_tokens": 8000}
    with ThreadPoolExecutor(1) as other, daemon.http.stream("POST", "/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        waiting = other.submit(says, daemon, "c")
        wait_until(lambda: daemon.model("c")["waiting"] == 1, "a request that waits for the room")
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in rest[-2].replace(" ", "")
        assert waiting.result(PATIENCE) == WORDS["c"]


def test_the_evicted_model_comes_back_after_a_waiter_has_left(daemon: RunningDaemon) -> None:
    """Who waited for the room is gone before it was there; afterwards every model answers, and not only /health."""
    says(daemon, "b")
    for _ in range(3):
        body = {"model": "c", "messages": [{"role": "user", "content": "endless"}]}
        with pytest.raises(httpx.ReadTimeout):
            daemon.http.post("/v1/chat/completions", json=body, timeout=0.03)
        assert says(daemon, "b") == WORDS["b"]
    assert [says(daemon, name) for name in NAMES] == list(WORDS.values())
    assert daemon.http.get("/api/v1/requests").json() == {"requests": []}


def test_every_answer_is_that_of_the_model_that_was_asked(daemon: RunningDaemon) -> None:
    """Under swaps, two clients for each model."""

    def client(name: str) -> set[str]:
        return {says(daemon, name) for _ in range(4)}

    with ThreadPoolExecutor(6) as clients:
        assert list(clients.map(client, NAMES * 2)) == [{WORDS[name]} for name in NAMES * 2]
    assert len(loaded(daemon)) <= 1


def test_a_request_right_after_the_death_of_an_idle_engine_is_answered(daemon: RunningDaemon) -> None:
    for _ in range(3):
        says(daemon, "b")
        pid = daemon.model("b")["pid"]
        os.kill(pid, signal.SIGKILL)
        assert says(daemon, "b") == WORDS["b"]
        assert daemon.model("b")["pid"] != pid


def test_an_engine_that_is_killed_while_it_loads_leaves_the_model_usable(daemon: RunningDaemon) -> None:
    says(daemon, "b")
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(daemon.chat, "c", "Hi")
        wait_until(lambda: daemon.model("c")["pid"] is not None, "an engine that loads")
        os.kill(daemon.model("c")["pid"], signal.SIGKILL)
        assert waiting.result(PATIENCE).status_code in {200, 503}
    daemon.load("c")
    assert says(daemon, "c") == WORDS["c"]


def test_loads_and_unloads_from_all_sides_leave_a_daemon_that_serves(daemon: RunningDaemon) -> None:
    def people(name: str) -> None:
        with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as http:
            for _ in range(ROUNDS):
                assert http.post("/api/v1/models/load", json={"target": name, "wait": False}).status_code == 202
                assert http.post("/api/v1/models/unload", json={"model": name, "now": name == "b"}).status_code == 200

    with ThreadPoolExecutor(3) as crowd:
        for one in [crowd.submit(people, name) for name in NAMES]:
            one.result()
    assert [says(daemon, name) for name in NAMES] == list(WORDS.values())


def test_looking_neither_wakes_a_model_nor_keeps_it(daemon: RunningDaemon) -> None:
    paths = ("/health", "/v1/models", "/running", "/api/v1/status", "/upstream/a/health", "/upstream/a/slots")
    says(daemon, "a")

    def look() -> bool:
        for path in paths:
            assert daemon.http.get(path).status_code in {200, 503}
        return bool(daemon.model("a")["state"] == "unloaded")

    wait_until(look, "the end of an idle model that is looked at")
    before = starts(daemon)
    look()
    assert starts(daemon) == before
