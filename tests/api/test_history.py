"""`/api/v1/history` on a real daemon and engine: a record for each request that has ended, however it ended."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = pytest.mark.engine

ROOT = "the-key-of-the-configuration"
CHAT = "/v1/chat/completions"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that asks for keys, with a model, and one whose file is none."""
    broken = tmp_path_factory.mktemp("broken") / "broken.gguf"
    broken.write_bytes(talker.read_bytes()[:4096])
    models = {
        "talker": {"file": str(talker), "parallel": 4, "ctx_size": 65536},
        "other": {"file": str(talker), "parallel": 4, "ctx_size": 65536},
        "broken": {"file": str(broken)},
    }
    env = {"SUPERVISOR_API_KEY": ROOT}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}, env=env) as running:
        running.http.headers["authorization"] = f"Bearer {ROOT}"
        yield running


@pytest.fixture
def agent(daemon: RunningDaemon, request: pytest.FixtureRequest) -> Iterator[str]:
    """What the test's client says that it is; its records are found by it."""
    before = daemon.http.headers["user-agent"]
    daemon.http.headers["user-agent"] = request.node.name
    yield request.node.name
    daemon.http.headers["user-agent"] = before


def said(text: str, model: str = "talker", **more: object) -> Json:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def history(daemon: RunningDaemon, **query: str | float) -> Json:
    answer = daemon.http.get("/api/v1/history", params={"limit": 1000, **query})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def ended(daemon: RunningDaemon, agent: str, count: int = 1) -> list[Json]:
    """So many records of a client, newest first; a record is there a moment after its answer."""
    found: list[Json] = []

    def there() -> bool:
        found[:] = [one for one in history(daemon)["requests"] if one["client"] == agent]
        return len(found) >= count

    wait_until(there, f"{count} records of {agent}")
    assert len(found) == count
    return found


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_is_told_with_its_tokens_and_times(daemon: RunningDaemon, agent: str, stream: bool) -> None:
    answer = daemon.http.post(CHAT, json=said("hello", stream=stream, max_tokens=4))
    (one,) = ended(daemon, agent)
    assert (one["path"], one["model"], one["key"], one["stream"]) == (CHAT, "talker", None, stream)
    assert (one["status"], one["code"], one["finish"], one["calls"]) == (200, None, "length", 0)
    assert one["request_id"] == answer.headers["x-request-id"]
    assert one["completion_tokens"] == 4
    assert one["prompt_tokens"] > one["cached_tokens"] >= 0
    assert one["prompt_ms"] > 0
    assert one["tokens_per_second"] == pytest.approx(4 / one["predicted_ms"] * 1000)
    assert 0 <= one["queued"] <= one["seconds"]
    assert one["queued"] <= one["first"] <= one["seconds"]
    assert daemon.http.get(f"/api/v1/history/{one['id']}").json() == one


def test_no_word_of_a_prompt_or_an_answer_is_kept(daemon: RunningDaemon, agent: str) -> None:
    daemon.http.post(CHAT, json=said("pssst-a-secret", user="pssst-me"))
    ended(daemon, agent)
    text = daemon.http.get("/api/v1/history/export?format=jsonl").text
    assert "pssst" not in text
    assert "Hello from the test model" not in text
    for file in daemon.home.rglob("history.db*"):
        assert b"pssst" not in file.read_bytes()


def test_vectors(daemon: RunningDaemon, agent: str) -> None:
    assert daemon.http.post("/v1/embeddings", json={"model": "talker", "input": "hello"}).status_code == 200
    (one,) = ended(daemon, agent)
    assert (one["path"], one["completion_tokens"], one["first"]) == ("/v1/embeddings", 0, None)
    assert one["prompt_tokens"] > 0


def test_a_model_that_is_not_there(daemon: RunningDaemon, agent: str) -> None:
    assert daemon.http.post(CHAT, json=said("hello", "pssst-nobody")).status_code == 404
    (one,) = ended(daemon, agent)
    assert (one["status"], one["code"], one["model"], one["queued"]) == (404, "model_not_found", None, None)
    assert "pssst-nobody" not in json.dumps(one)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/completion", "/upstream/talker/completion"])
def test_an_error_of_the_engine(daemon: RunningDaemon, agent: str, path: str, stream: bool) -> None:
    body = {"model": "talker", "prompt": "a", "grammar": "root ::= (", "stream": stream}
    answer = daemon.http.post(path, json=body)
    (one,) = ended(daemon, agent)
    assert one["status"] == answer.status_code == 400
    ours = path == "/completion"  # below /upstream the engine's answer is as it is
    assert one["code"] == (answer.json()["error"]["code"] if ours else "engine_error")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves(daemon: RunningDaemon, agent: str, stream: bool) -> None:
    daemon.load("talker")
    body = said("endless", stream=stream, max_tokens=100_000)
    if stream:
        with daemon.http.stream("POST", CHAT, json=body) as answer:
            next(answer.iter_bytes())
    else:
        daemon.leave(CHAT, body)
    (one,) = ended(daemon, agent)
    assert (one["status"], one["code"], one["finish"]) == (499, "client_gone", None)
    if stream:
        assert one["first"] is not None


def _break_off(daemon: RunningDaemon, how: Callable[[], object]) -> None:
    with daemon.http.stream("POST", CHAT, json=said("endless", stream=True, max_tokens=100_000)) as answer:
        events = answer.iter_lines()
        next(events)
        how()
        assert [line for line in events if line][-1] == "data: [DONE]"


def test_a_cancelled_request(daemon: RunningDaemon, agent: str) -> None:
    def cancel() -> None:
        (running,) = daemon.http.get("/api/v1/requests").json()["requests"]
        assert daemon.http.delete(f"/api/v1/requests/{running['id']}").status_code == 200

    _break_off(daemon, cancel)
    (one,) = ended(daemon, agent)
    assert (one["status"], one["code"]) == (200, "request_cancelled")


def test_a_crash_within_a_stream(daemon: RunningDaemon, agent: str) -> None:
    daemon.load("talker")
    _break_off(daemon, lambda: os.kill(daemon.model("talker")["pid"], signal.SIGKILL))
    (one,) = ended(daemon, agent)
    assert (one["status"], one["code"]) == (200, "engine_lost")
    assert one["completion_tokens"] > 0
    gone = daemon.http.get("/api/v1/history/loads", params={"model": "talker"}).json()["loads"]
    assert any(event["code"] is not None and "SIGKILL" in event["reason"] for event in gone)


@pytest.mark.parametrize(
    ("target", "path"), [(CHAT, f"/upstream/MODEL{CHAT}"), ("/apply-template", "/upstream/MODEL/apply-template")]
)
def test_below_upstream(daemon: RunningDaemon, agent: str, target: str, path: str) -> None:
    assert daemon.http.post(f"/upstream/talker{target}", json=said("hello", max_tokens=4)).status_code == 200
    (one,) = ended(daemon, agent)
    assert (one["path"], one["model"], one["status"]) == (path, "talker", 200)


def test_paths_that_are_in_no_row_count_as_one(daemon: RunningDaemon, agent: str) -> None:
    for number in range(3):
        daemon.http.get(f"/upstream/talker/nowhere/{number}")
    assert {one["path"] for one in ended(daemon, agent, 3)} == {"/upstream/MODEL/*"}


def test_below_upstream_a_model_that_is_not_there_is_not_in_it(daemon: RunningDaemon, agent: str) -> None:
    assert daemon.http.post(f"/upstream/nobody{CHAT}", json=said("hello")).status_code == 404
    assert daemon.http.post(CHAT, json=said("hello", "nobody")).status_code == 404
    assert [one["path"] for one in ended(daemon, agent)] == [CHAT]


def test_a_key_is_told_by_its_name_and_one_for_some_models_may_not_look(daemon: RunningDaemon, agent: str) -> None:
    rules = {"name": "bot", "scopes": ["infer", "read"], "models": ["talker"]}
    key = daemon.http.post("/api/v1/keys", json=rules).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    assert daemon.http.post(CHAT, json=said("hello", max_tokens=2), headers=headers).status_code == 200
    (one,) = ended(daemon, agent)
    assert one["key"] == "bot"
    assert history(daemon, key="bot")["requests"] == [one]
    paths = ("", "/summary", "/loads", "/export", f"/{one['id']}")
    for path in [*(f"/api/v1/history{path}" for path in paths), "/metrics"]:
        answer = daemon.http.get(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), path
    assert daemon.http.delete("/api/v1/history", headers=headers).status_code == 403


def test_a_key_that_reads_all_may_look_and_not_forget(daemon: RunningDaemon) -> None:
    key = daemon.http.post("/api/v1/keys", json={"name": "prometheus", "scopes": ["read"]}).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    for path in ("/api/v1/history", "/api/v1/history/summary", "/metrics"):
        assert daemon.http.get(path, headers=headers).status_code == 200, path
    assert daemon.http.delete("/api/v1/history", headers=headers).status_code == 403


def test_a_load_that_fails(daemon: RunningDaemon, agent: str) -> None:
    answer = daemon.http.post(CHAT, json=said("hello", "broken"))
    (one,) = ended(daemon, agent)
    assert (one["status"], one["code"]) == (answer.status_code, answer.json()["error"]["code"])
    assert (one["model"], one["queued"]) == ("broken", None)


def test_loads_have_their_seconds(daemon: RunningDaemon) -> None:
    daemon.load("other")
    loads = daemon.http.get("/api/v1/history/loads", params={"model": "other"}).json()["loads"]
    assert {one["model"] for one in loads} == {"other"}
    ready = next(one for one in loads if one["event"] == "engine_ready")
    assert ready["seconds"] > 0
    assert any(one["event"] == "engine_start" and one["id"] < ready["id"] for one in loads)


def test_filters_and_pages(daemon: RunningDaemon, agent: str) -> None:
    for number in range(5):
        daemon.http.post(CHAT, json=said("hello", "other" if number % 2 else "talker", max_tokens=1))
    daemon.http.post(CHAT, json=said("hello", "nobody"))
    mine = ended(daemon, agent, 6)
    since = min(one["at"] for one in mine)

    def ids(**query: str | float) -> list[int]:
        return [one["id"] for one in history(daemon, since=since, **query)["requests"]]

    every = [one["id"] for one in mine]
    assert ids() == every == sorted(every, reverse=True)
    assert ids(model="other") == [one["id"] for one in mine if one["model"] == "other"]
    assert ids(code="model_not_found") == ids(status=404) == [mine[0]["id"]]
    assert ids(path="/v1/embeddings") == ids(key="nobody") == ids(until=since) == []
    found: list[int] = []
    page: Json = {"next": None}
    while not found or page["next"] is not None:
        page = history(daemon, since=since, limit=4, **({"before": page["next"]} if page["next"] else {}))
        found += [one["id"] for one in page["requests"]]
    assert found == every
    assert history(daemon, since=since, limit=6)["next"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "since=nan", "status=99", "before=0", "since=yesterday"])
def test_a_question_out_of_bounds_is_refused(daemon: RunningDaemon, query: str) -> None:
    answer = daemon.http.get(f"/api/v1/history?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert answer.json()["error"]["param"] == query.partition("=")[0]


def test_a_record_that_is_not_there(daemon: RunningDaemon) -> None:
    answer = daemon.http.get("/api/v1/history/999999999")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "record_not_found")


def test_a_summary_of_what_a_filter_leaves(daemon: RunningDaemon, agent: str) -> None:
    for _ in range(3):
        daemon.http.post(CHAT, json=said("hello", "other", max_tokens=2, stream=True))
    mine = ended(daemon, agent, 3)
    since, until = min(one["at"] for one in mine), max(one["at"] for one in mine) + 1
    query = {"model": "other", "since": since, "until": until, "buckets": 7}
    found = daemon.http.get("/api/v1/history/summary", params=query).json()
    assert (found["since"], found["until"]) == (since, until)
    assert found["all"] == found["models"]["other"]
    assert (found["all"]["requests"], found["all"]["errors"], found["all"]["completion_tokens"]) == (3, 0, 6)
    assert found["all"]["first"]["p50"] == sorted(one["first"] for one in mine)[1]
    assert len(found["over_time"]["requests"]) == 7
    assert sum(found["over_time"]["requests"]) == 3


@pytest.mark.parametrize(
    ("client", "shown"),
    [
        ("=cmd()", "'=cmd()"),
        ("a;=cmd();-1", "a;'=cmd();'-1"),
        ("a|@x", "a|'@x"),
        ("Mozilla/5.0 (a; b) c=d", "Mozilla/5.0 (a; b) c=d"),
    ],
    ids=["at its beginning", "where some cut at semicolons", "or at bars", "a browser"],
)
def test_a_table_for_a_spreadsheet_has_no_formula(daemon: RunningDaemon, client: str, shown: str) -> None:
    daemon.http.post(CHAT, json=said("hello", "nobody"), headers={"user-agent": client})
    (one,) = ended(daemon, client)
    query = {"since": one["at"], "code": "model_not_found"}
    answer = daemon.http.get("/api/v1/history/export", params=query)
    assert answer.headers["content-type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert list(row) == list(one)
    assert row["client"] == shown
    assert (row["id"], row["status"], row["model"]) == (str(one["id"]), "404", "")


def test_lines_of_json_are_the_records(daemon: RunningDaemon, agent: str) -> None:
    daemon.http.post(CHAT, json=said("hello", "nobody"))
    (one,) = ended(daemon, agent)
    answer = daemon.http.get("/api/v1/history/export", params={"format": "jsonl", "since": one["at"]})
    assert [json.loads(line) for line in answer.text.splitlines()] == [one]


def test_it_is_forgotten(daemon: RunningDaemon, agent: str) -> None:
    daemon.http.post(CHAT, json=said("hello", "nobody"))
    ended(daemon, agent)
    count = len(history(daemon)["requests"])
    assert daemon.http.delete("/api/v1/history").json() == {"requests": count}
    assert history(daemon) == {"requests": [], "next": None}
    assert daemon.http.get("/api/v1/history/loads").json() == {"loads": [], "next": None}
    daemon.http.post(CHAT, json=said("hello", "nobody"))
    ended(daemon, agent)


def test_it_is_there_after_a_restart_and_not_with_no_days(engine_binary: Path, talker: Path) -> None:
    with scratch_home() as home:
        for days, kept in ((30, 1), (30, 2), (0, 0)):
            with running_daemon(home, engine_binary, {"history": {"days": days}}) as running:
                assert running.http.post(CHAT, json=said("hello", "nobody")).status_code == 404
                wait_until(lambda: len(history(running)["requests"]) == kept, f"{kept} records")  # noqa: B023 - asked now
