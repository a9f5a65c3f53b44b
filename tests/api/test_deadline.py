"""A client says how long its request may wait for an engine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = pytest.mark.engine

PATHS = ("/v1/chat/completions", "/upstream/talker/v1/chat/completions")
SOON = {"x-request-timeout": "0.2"}
LATER = {"x-request-timeout": "3600"}


@pytest.fixture(scope="module")
def narrow(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon whose model has one slot."""
    models = {"talker": {"file": str(talker), "parallel": 1, "ctx_size": 65536}}
    settings = {"models": models, "server": {"keep_alive": 0.05}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        running.load("talker")
        yield running


def chat(content: str, *, stream: bool) -> dict[str, Any]:
    return {"model": "talker", "messages": [{"role": "user", "content": content}], "stream": stream}


@contextlib.contextmanager
def at_work(daemon: RunningDaemon) -> Iterator[None]:
    """The slot is taken within the block; afterwards it is free."""
    with daemon.http.stream("POST", PATHS[0], json=chat("endless", stream=True)) as answer:
        lines = answer.iter_lines()  # the stream ends with it
        next(lines)
        yield
    wait_until(lambda: daemon.model("talker")["leases"] == 0, "the slot is free")


@pytest.mark.parametrize("path", PATHS)
def test_a_request_that_waits_too_long_leaves_its_place(narrow: RunningDaemon, path: str) -> None:
    with at_work(narrow):
        answer = narrow.http.post(path, json=chat("Hi", stream=False), headers=SOON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_passed")
        assert answer.headers["x-should-retry"] == "false"
        status = narrow.model("talker")
        assert (status["waiting"], status["leases"]) == (0, 1)
        assert len(narrow.http.get("/api/v1/requests").json()["requests"]) == 1


def test_a_stream_that_has_had_comments_ends_with_the_error(narrow: RunningDaemon) -> None:
    for seconds in ("0.2", "2", "20"):  # a machine that is busy may come to the comment no sooner than to the end
        with at_work(narrow):
            answer = narrow.http.post(PATHS[0], json=chat("Hi", stream=True), headers={"x-request-timeout": seconds})
        if answer.status_code == 200:
            break
    comment, *_, error, done, _ = answer.text.split("\n\n")
    assert (answer.status_code, comment, done) == (200, ": queued behind 0", "data: [DONE]")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "deadline_passed"


@pytest.mark.parametrize("path", PATHS)
def test_who_has_an_engine_is_not_interrupted(narrow: RunningDaemon, path: str) -> None:
    with narrow.http.stream("POST", path, json=chat("endless", stream=True), headers=SOON) as answer:
        events = answer.iter_lines()
        with httpx.Client(base_url=narrow.url, trust_env=False) as other:
            late = other.post(path, json=chat("Hi", stream=False), headers={"x-request-timeout": "0.5"})
        assert late.json()["error"]["code"] == "deadline_passed", "by now the first one's time has passed, too"
        assert all(next(events) is not None for _ in range(100))
    assert narrow.http.post(path, json=chat("Hi", stream=False), headers=LATER).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("said", ["", "0", "-1", "soon", "nan", "inf", "86401", "1e999"])
def test_a_deadline_is_some_seconds(narrow: RunningDaemon, path: str, said: str) -> None:
    answer = narrow.http.post(path, json=chat("Hi", stream=False), headers={"x-request-timeout": said})
    if not said:
        assert answer.status_code == 200
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
