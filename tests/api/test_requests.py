"""Requests in flight, their end by number, and the stream of events."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine


@pytest.fixture
def narrow(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    """A daemon whose one model has one slot."""
    models = {"talker": {"file": str(talker), "parallel": 1, "ctx_size": 65536}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


@contextmanager
def asking(daemon: RunningDaemon, content: str, **more: Any) -> Iterator[list[httpx.Response]]:
    """A request on a thread of its own; its answer is in the list once the block has ended."""
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(daemon.chat("talker", content, **more)))
    thread.start()
    yield answers
    thread.join(PATIENCE)
    assert answers, "the request was not answered"


def in_flight(daemon: RunningDaemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.http.get("/api/v1/requests").json()["requests"]
    return found


def cancel(daemon: RunningDaemon, number: int) -> httpx.Response:
    return daemon.http.delete(f"/api/v1/requests/{number}")


def test_a_request_is_listed_while_it_runs_and_not_afterwards(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    with asking(daemon, "endless", stream=True, max_tokens=100_000):
        wait_until(lambda: [one["state"] for one in in_flight(daemon)] == ["running"], "it runs")
        (one,) = in_flight(daemon)
        assert (one["model"], one["path"], one["stream"]) == ("talker", "/v1/chat/completions", True)
        assert one["engine"] == daemon.model("talker")["engines"][0]["engine"]
        assert cancel(daemon, one["id"]).json()["id"] == one["id"]
    assert in_flight(daemon) == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/talker/v1/chat/completions"])
def test_what_comes_of_a_running_request_is_told_with_its_speed(daemon: RunningDaemon, path: str) -> None:
    daemon.load("talker")
    body = {"model": "talker", "messages": [{"role": "user", "content": "endless"}], "stream": True}
    with daemon.http.stream("POST", path, json=body) as answer:
        lines = answer.iter_lines()
        wait_until(lambda: bool(next(lines)) and in_flight(daemon)[0]["completion_tokens"] > 20, "tokens come")
        (one,) = in_flight(daemon)
        assert one["tokens_per_second"] > 0
        with daemon.http.stream("GET", "/api/v1/events") as told:
            events = told.iter_lines()
            (seen,) = json.loads(_data(events))["requests"]
            assert seen["completion_tokens"] >= one["completion_tokens"]
            daemon.http.post("/api/v1/models/pin", json={"model": "talker"})
            assert '"pinned": true' in _data(events), "tokens that come are no event"
    daemon.http.post("/api/v1/models/unpin", json={"model": "talker"})


def _data(lines: Iterator[str]) -> str:
    """The data of the next event."""
    return next(line for line in lines if line.startswith("data: ")).removeprefix("data: ")


def test_a_cancelled_stream_ends_with_the_error_and_done_and_its_slot_is_free(narrow: RunningDaemon) -> None:
    narrow.load("talker")
    body = {"model": "talker", "messages": [{"role": "user", "content": "endless"}], "stream": True}
    with narrow.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        arriving = answer.iter_text()
        text = next(arriving)
        (one,) = in_flight(narrow)
        cancel(narrow, one["id"])
        wait_until(lambda: narrow.busy_slots("talker") == 0, "its slot is free")
        events = (text + "".join(arriving)).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert json.loads(events[-3].removeprefix("data: "))["error"]["code"] == "request_cancelled"
    assert narrow.model("talker")["leases"] == 0
    assert narrow.chat("talker", "hello").status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_waiting_request_that_is_cancelled_gets_an_error_and_takes_nothing(
    narrow: RunningDaemon, stream: bool
) -> None:
    narrow.load("talker")
    with asking(narrow, "endless", stream=True, max_tokens=100_000):
        wait_until(lambda: len(in_flight(narrow)) == 1, "the first one")
        with asking(narrow, "hello", stream=stream) as second:
            wait_until(lambda: [one["state"] for one in in_flight(narrow)] == ["running", "waiting"], "it waits")
            first, waiting = in_flight(narrow)
            cancel(narrow, waiting["id"])
        assert second[0].status_code == 499
        assert second[0].json()["error"]["code"] == "request_cancelled"
        assert second[0].headers["x-should-retry"] == "false"
        assert [one["id"] for one in in_flight(narrow)] == [first["id"]]
        assert narrow.model("talker")["waiting"] == 0
        cancel(narrow, first["id"])


def test_a_running_request_without_a_stream_is_cancelled(narrow: RunningDaemon) -> None:
    narrow.load("talker")
    with asking(narrow, "endless", max_tokens=100_000) as answers:
        wait_until(lambda: narrow.busy_slots("talker") == 1, "it has a slot")
        cancel(narrow, in_flight(narrow)[0]["id"])
        wait_until(lambda: narrow.busy_slots("talker") == 0, "its slot is free")
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (499, "request_cancelled")


def test_an_unknown_request_is_not_found(daemon: RunningDaemon) -> None:
    answer = cancel(daemon, 4711)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "request_not_found")
    unknown = daemon.http.delete("/api/v1/requests/x")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "request_not_found")
    assert daemon.http.delete(f"/api/v1/requests/{'x' * 129}").status_code == 400


@contextmanager
def listening(daemon: RunningDaemon) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """The events as they come."""
    with daemon.http.stream("GET", "/api/v1/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events_of(answer.iter_lines())


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_events_begin_with_a_snapshot_and_tell_changes(narrow: RunningDaemon) -> None:
    with listening(narrow) as events:
        name, snapshot = next(events)
        assert (name, snapshot["requests"]) == ("snapshot", [])
        assert {model["id"]: model["state"] for model in snapshot["models"]}["talker"] == "unloaded"
        with asking(narrow, "hello"):
            pass
        seen: list[tuple[str, dict[str, Any]]] = []
        for event in events:
            seen.append(event)
            if event[0] == "request_done":
                break
    assert [one["state"] for name, one in seen if name == "model"][:1] == ["reserved"]
    assert any(one["state"] == "ready" for name, one in seen if name == "model")
    assert any(name == "request" and one["path"] == "/v1/chat/completions" for name, one in seen)


def test_a_reader_that_does_not_read_is_told_the_newest_state_and_holds_nothing_up(narrow: RunningDaemon) -> None:
    """Hundreds of changes, none of them read: what is read afterwards is less than one event for each."""
    narrow.load("talker")
    with listening(narrow) as events:
        next(events)
        for number in range(60):
            assert narrow.http.post(f"/api/v1/models/{('un' * (number % 2))}pin", json={"model": "talker"}).is_success
        narrow.http.post("/api/v1/models/pin", json={"model": "talker"})
        pinned = []
        for _, told in events:
            pinned.append(told["pinned"])
            if pinned[-1]:
                break
    assert len(pinned) < 60


def test_events_end_with_the_daemon(narrow: RunningDaemon) -> None:
    with listening(narrow) as events:
        next(events)
        narrow.http.post("/api/v1/shutdown")
        assert list(events) == []
    assert narrow.process.wait(PATIENCE) == 0


def test_a_pinned_model_says_so_and_what_it_takes(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    pinned = daemon.http.post("/api/v1/models/pin", json={"model": "parrot"}).json()
    assert (pinned["id"], pinned["pinned"]) == ("talker", True)
    (part,) = pinned["plan"]["parts"]
    assert part["name"] == "CPU"
    assert part["total_bytes"] > part["weights_bytes"] > 0
    assert pinned["plan"]["why"]
    assert not daemon.http.post("/api/v1/models/unpin", json={"model": "talker"}).json()["pinned"]
    unknown = daemon.http.post("/api/v1/models/pin", json={"model": "nobody"})
    assert unknown.json()["error"]["code"] == "model_not_found"
